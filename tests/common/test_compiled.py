"""Compiled loops are kept by the version of all sources."""

import gc
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from numba.core import event
from numba.core.errors import TypingError

from kernbench.common import compiled

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import user
print(user.twice(3))
"""


@pytest.mark.programs
def test_a_constant_of_another_file_is_not_stale(tmp_path, monkeypatch):
    (tmp_path / "constants.py").write_text("FACTOR = 2\n")
    (tmp_path / "user.py").write_text(
        "from pathlib import Path\nfrom constants import FACTOR\nfrom kernbench.common import compiled, native_loops\n"
        "compiled._PACKAGE, compiled.PACKAGES = Path(__file__).parent, ('.',)\n"
        "@native_loops.native_loop\ndef twice(x):\n    return x * FACTOR\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)

    def told():
        command = [sys.executable, "-c", SCRIPT.format(folder=str(tmp_path))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout.strip() or done.stderr

    assert told() == "6"
    (tmp_path / "constants.py").write_text("FACTOR = 50\n")
    assert told() == "150"
    assert len(list((tmp_path / "cache" / "kernbench").iterdir())) == 2


def test_only_the_last_versions_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # what other parts of kernbench keep there is no version, however old it is
    others = ["driver", "cupy", "npu"]
    versions = [f"{number:016x}" for number in range(6)]
    for age, name in enumerate([*others, *versions]):
        old = tmp_path / "kernbench" / name
        old.mkdir(parents=True)
        os.utime(old, (age, age))
    compiled.folder.cache_clear()
    mine = compiled.folder()
    compiled.folder.cache_clear()
    left = {path.name for path in (tmp_path / "kernbench").iterdir()}
    assert left == {*others, *versions[3:], Path(mine).name}


def test_versions_that_may_be_in_use_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in range(6):
        (tmp_path / "kernbench" / f"{number:016x}").mkdir(parents=True)
    compiled.folder.cache_clear()
    compiled.folder()
    compiled.folder.cache_clear()
    assert len(list((tmp_path / "kernbench").iterdir())) == 7


@pytest.mark.parametrize("variable", ["XDG_CACHE_HOME", "NUMBA_CACHE_DIR"])
def test_loops_that_are_made_of_text_are_kept_by_version_too(tmp_path, variable):
    script = (
        "from kernbench.common import compiled\nfrom kernbench.ptx.numerics.rows.loops import row_kernel\n"
        "kernel = row_kernel('same', compiled.part(lambda x: x), 1)\n"
        "print(kernel.beside('.loop'), compiled.folder())"
    )
    environment = {**os.environ, variable: str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    place, folder = done.stdout.split()
    assert place.startswith(folder)
    assert folder.startswith(str(tmp_path / "kernbench"))


def test_a_part_is_compiled_once_for_all_constants_and_is_a_plain_function_in_python():
    @compiled.part
    def raised(value, by):
        return value + by

    @compiled.njit(_nrt=False)
    def raise_all(values):
        for i in range(len(values)):
            values[i] = raised(raised(values[i], 1), 2)

    values = np.arange(3)
    with event.install_recorder("numba:compile") as seen:
        raise_all(values)
    assert values.tolist() == [3, 4, 5]
    assert raised("a", "b") == "ab"
    assert [len(told.data["args"]) for _, told in seen.buffer if told.is_start] == [1, 2]


def test_every_loop_is_compiled_here():
    package = Path(compiled.__file__).parent.parent
    own = [path for path in package.rglob("*.py") if path.name not in ("compiled.py", "by_numba.py")]
    direct = ("from numba import njit", "numba.njit", "from numba import jit", "numba.jit")
    assert [path.name for path in own if any(text in path.read_text() for text in direct)] == []


def test_compiling_for_long_is_told_once(monkeypatch, caplog):
    monkeypatch.setattr(compiled.time, "monotonic", iter([0.0, 0.0, 1.5, 10.0, 10.0, 10.7, 11.5, 20.0, 20.0]).__next__)
    watch = compiled._Stopwatch()
    with caplog.at_level("INFO", "kernbench"):
        watch.on_start(None)
        watch.on_end(None)
        watch.on_start(None)
        assert (watch.seconds, caplog.messages) == (1.5, [])
        # a loop within: 2.2 seconds by now
        watch.on_start(None)
        watch.on_end(None)
        watch.on_end(None)
        watch.on_start(None)
    assert watch.seconds == 3.0
    assert len(caplog.messages) == 1
    assert compiled.folder() in caplog.messages[0]


@pytest.mark.parametrize("before", [True, False])
def test_garbage_is_not_looked_for_while_a_loop_is_compiled(before):
    class Collector(event.Listener):
        def on_start(self, event):
            seen.append(gc.isenabled())

        def on_end(self, event):
            seen.append(gc.isenabled())

    seen = []
    loop = compiled.njit()(lambda x: x + missing)  # noqa: F821
    (gc.enable if before else gc.disable)()
    try:
        with event.install_listener("numba:run_pass", Collector()), pytest.raises(TypingError, match="missing"):
            loop(1)
        assert gc.isenabled() == before
    finally:
        gc.enable()
    assert seen
    assert not any(seen)


@pytest.fixture
def fresh_folder():
    """The folder is looked for anew, and again after the test."""
    compiled.folder.cache_clear()
    yield
    compiled.folder.cache_clear()


def test_where_there_is_no_home_loops_are_kept_with_temporary_files(tmp_path, monkeypatch, fresh_folder):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(compiled, "gettempdir", lambda: str(tmp_path))
    kept = tmp_path / f"kernbench-{os.getuid()}"
    assert Path(compiled.folder()).parent == kept
    assert kept.stat().st_mode & 0o77 == 0


def test_loops_that_somebody_else_put_there_are_not_taken(tmp_path, monkeypatch, fresh_folder):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(compiled, "gettempdir", lambda: str(tmp_path))
    compiled.folder()
    compiled.folder.cache_clear()
    somebody = os.getuid() + 1
    monkeypatch.setattr(compiled.os, "getuid", lambda: somebody)
    (tmp_path / f"kernbench-{os.getuid()}").mkdir()
    assert compiled.folder() == ""


def test_nowhere_to_keep_it(tmp_path, monkeypatch, fresh_folder):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(compiled, "gettempdir", lambda: str(tmp_path / "file"))
    assert compiled.folder() == ""
    loop = compiled.njit(cache=True)(lambda x: x + 1)
    assert loop(1) == 2
    assert not list(tmp_path.rglob("*.nb*"))


def test_the_version_of_kept_loops_covers_every_file_with_one():
    package = compiled._PACKAGE
    made = re.compile(r"kernbench.common.compiled import .*\b(loop|part|inlined|njit)\b")
    files = [path for path in package.rglob("*.py") if made.search(path.read_text())]
    assert len(files) > 10
    covered = [package / one for one in compiled.PACKAGES]
    assert [path for path in files if not any(path.is_relative_to(package) for package in covered)] == []


LOOPS = """
from pathlib import Path
import numpy as np
from kernbench.common import compiled
compiled._PACKAGE, compiled.PACKAGES = Path(__file__).parent, ('.',)

@compiled.loop
def double(row):
    for at in range(row.size):
        row[at] *= 2

@compiled.loop
def twice(row):
    double(row)
    double(row)
"""

CALLS = """
import sys
sys.path.insert(0, {folder!r})
import loops, numpy as np
from kernbench.common import compiled
row = np.ones(3)
{calls}
print(row.tolist(), "numba.np.linalg" in sys.modules, sum(loops.{called}.stats.cache_hits.values()))
"""


@pytest.fixture
def kept_loops(tmp_path):
    """Calls loops of a file in a process of their own, which keep what they compile."""
    (tmp_path / "loops.py").write_text(LOOPS)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)

    def call(calls, called):
        script = CALLS.format(folder=str(tmp_path), calls=calls, called=called)
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return done.stdout.strip()

    return call


@pytest.mark.programs
def test_a_kept_loop_is_called_without_what_compiling_needs(kept_loops, tmp_path):
    assert kept_loops("loops.double(row)", "double") == "[2.0, 2.0, 2.0] True 0"
    assert kept_loops("loops.double(row)", "double") == "[2.0, 2.0, 2.0] False 1"
    # it is linked into one that is compiled later
    assert kept_loops("loops.double(row); loops.twice(row)", "double") == "[8.0, 8.0, 8.0] True 1"
    # what is damaged is compiled anew
    for kept in tmp_path.glob("cache/**/*.nbc"):
        kept.write_bytes(kept.read_bytes()[:100])
    assert kept_loops("loops.double(row)", "double") == "[2.0, 2.0, 2.0] True 0"


@pytest.mark.parametrize("package", ["numba", "llvmlite", "numpy", "pytest", "hypothesis"])
def test_the_version_of_a_package_is_what_its_metadata_say(package):
    assert compiled.version_of(package) == metadata.version(package)


def test_the_version_of_a_package_that_lies_elsewhere(tmp_path, monkeypatch):
    """The first on the path counts; where no folder says it, the package does."""
    compiled.version_of.cache_clear()
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "folded-1.2+own.dist-info").mkdir()
    (tmp_path / "plain_one").mkdir()
    (tmp_path / "plain_one" / "__init__.py").write_text("__version__ = '7'\n")
    assert compiled.version_of("folded") == "1.2+own"
    assert compiled.version_of("plain_one") == "7"
    compiled.version_of.cache_clear()


def test_what_launches_need_is_imported_without_debuggers_and_readers_of_mail():
    script = (
        "import sys, kernbench.ptx.devices.device, kernbench.common.compiled as compiled\n"
        "compiled.tools()\n"
        "print([name for name in ('pdb', 'email', 'importlib.metadata') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
