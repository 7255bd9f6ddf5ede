"""Compiled loops go from one machine to another of its type; files that are damaged, foreign or hostile do not."""

import json
import os
import pickle
import subprocess
import sys
import zipfile
from hashlib import sha256

import pytest
from tests import sampled

from kernbench.common import compiled, sharing
from kernbench.common.errors import CacheError

FILES = {
    "ptx.time/engine.simulate-7.py311.1.nbc": b"code",
    "ptx.time/engine.simulate-7.py311.nbi": b"table",
    "timing/engine.play-9.py311.1.nbc": b"more code",
    "timing/engine.play-9.py311.nbi": b"another table",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of loops that is empty."""
    mine = tmp_path / "kernbench" / "version"
    mine.mkdir(parents=True)
    monkeypatch.setattr(compiled, "folder", lambda: str(mine))
    return mine


@pytest.fixture
def keep(folder):
    """Puts files of loops into the folder."""

    def put(files=FILES):
        for name, data in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)

    return put


def lying(folder):
    """All files below a folder, with what they hold."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def written(tmp_path):
    """Writes a file of loops as one likes."""

    def write(files=FILES, machine=None, version=1, sums=None, more=()):
        path = tmp_path / "loops.zip"
        told = {name: sha256(data).hexdigest() for name, data in files.items()} if sums is None else sums
        about = {"format": version, "machine": {**sharing.machine_type(), **(machine or {})}, "files": told}
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("kernbench-cache.json", json.dumps(about))
            for name, data in {**files, **dict(more)}.items():
                archive.writestr(name, data)
        return path

    return write


def test_what_is_exported_is_imported(folder, keep, tmp_path):
    keep({**FILES, "programs/abc": b"not a loop", "timing/engine.play-9.py311.lock": b""})
    digest = sharing.export(tmp_path / "loops.zip")
    assert digest == sha256((tmp_path / "loops.zip").read_bytes()).hexdigest()
    assert sharing.clear() == sum(map(len, FILES.values())) + len(b"not a loop")
    assert lying(folder) == {}
    assert sharing.bring(tmp_path / "loops.zip", digest.upper()) == (2, 0)
    assert lying(folder) == FILES
    assert sharing.kept().loops == {"ptx.time.engine.simulate": 9, "timing.engine.play": 22}


def test_what_is_kept_already_stays(folder, keep, written):
    keep({"timing/engine.play-9.py311.nbi": b"mine", "timing/engine.play-9.py311.1.nbc": b"my code"})
    assert sharing.bring(written()) == (1, 1)
    assert lying(folder)["timing/engine.play-9.py311.nbi"] == b"mine"
    assert lying(folder)["timing/engine.play-9.py311.1.nbc"] == b"my code"
    assert sharing.bring(written()) == (0, 2)


def test_nothing_to_export(folder, tmp_path):
    with pytest.raises(CacheError, match="kernbench cache warm"):
        sharing.export(tmp_path / "loops.zip")
    assert not (tmp_path / "loops.zip").exists()


def test_a_place_that_cannot_be_written(keep, tmp_path):
    keep()
    with pytest.raises(CacheError, match="cannot be written"):
        sharing.export(tmp_path / "missing" / "loops.zip")


def test_an_export_that_fails_leaves_the_file_as_it_was(keep, tmp_path, monkeypatch):
    keep()
    target = tmp_path / "loops.zip"
    target.write_bytes(b"before")

    def full(*given):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sharing.zipfile.ZipFile, "writestr", full)
    with pytest.raises(CacheError, match="No space left"):
        sharing.export(target)
    assert target.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["loops.zip"]


@pytest.mark.parametrize("key", ["cpu", "features", "system", "python", "numba", "llvmlite", "numpy", "kernbench"])
def test_another_type_of_machine_is_refused(folder, written, key):
    with pytest.raises(CacheError, match=f"another type of machine.*{key} 'other' there"):
        sharing.bring(written(machine={key: "other"}))
    assert lying(folder) == {}


def test_loops_of_our_own_compiler_are_one_file_each(folder, keep, tmp_path):
    file = "ptx.time/engine.simulate-7.loop_0123456789abcdef01234567.loop"
    keep({file: b"machine code"})
    digest = sharing.export(tmp_path / "loops.zip")
    assert sharing.bring(tmp_path / "loops.zip", digest) == (0, 1)
    (folder / file).unlink()
    assert sharing.bring(tmp_path / "loops.zip", digest) == (1, 0)
    assert lying(folder)[file] == b"machine code"
    assert sharing.kept().loops == {"ptx.time.engine.simulate": 12}


def test_export_and_import_count_the_same_loops(folder, keep, tmp_path):
    """A loop has versions, for other types of arguments, of a file each, or of a table and its code."""
    versions = {
        "timing/engine.play-9.loop_0123456789abcdef01234567.loop": b"for floats",
        "timing/engine.play-9.loop_89abcdef0123456789abcdef.loop": b"for integers",
        "ptx.time/engine.simulate-7.py312.1.nbc": b"code",
        "ptx.time/engine.simulate-7.py312.nbi": b"of another Python",
    }
    keep({**FILES, **versions})
    exported = len(sharing.kept().loops)
    digest = sharing.export(tmp_path / "loops.zip")
    assert sharing.bring(tmp_path / "loops.zip", digest) == (0, exported) == (0, 2)
    # one version of one loop is missing
    next(path for path in folder.rglob("*.loop")).unlink()
    assert sharing.bring(tmp_path / "loops.zip", digest) == (1, 1)
    sharing.clear()
    assert sharing.bring(tmp_path / "loops.zip", digest) == (exported, 0)
    assert len(sharing.kept().loops) == exported
    assert lying(folder) == {**FILES, **versions}


@pytest.mark.parametrize(
    "name",
    [
        "../escaped-1.py311.nbi",
        "/tmp/escaped-1.py311.nbi",
        "timing/../../escaped-1.py311.nbi",
        "a/b/c-1.py311.nbi",
        "./c-1.py311.nbi",
        "timing/.hidden.nbi",
        "timing\\c-1.py311.nbi",
        "timing/program.py",
        "c-1.py311.nbi",
        "timing/c-1.py311.nbi\n",
    ],
)
def test_files_that_are_no_loops_are_refused(folder, written, name, tmp_path):
    with pytest.raises(CacheError, match=r"no compiled loop|damaged"):
        sharing.bring(written({**FILES, name: b"x"}))
    assert lying(folder) == {}
    assert not list(tmp_path.rglob("*escaped*"))


def test_a_file_that_the_list_does_not_name_is_refused(folder, written):
    with pytest.raises(CacheError, match="no compiled loop"):
        sharing.bring(written(more={"timing/other-1.py311.nbi": b"x"}.items()))


def test_what_is_not_as_it_was_is_refused_whole(folder, written):
    sums = {name: sha256(data).hexdigest() for name, data in FILES.items()}
    with pytest.raises(CacheError, match=r"engine.play-9.py311.nbi is not what it was"):
        sharing.bring(written(sums={**sums, "timing/engine.play-9.py311.nbi": "0" * 64}))
    with pytest.raises(CacheError, match="is missing"):
        sharing.bring(written(sums={**sums, "timing/more-9.py311.nbi": "0" * 64}))
    assert lying(folder) == {}


@pytest.mark.parametrize("about", ["", "[]", "{}", '{"format": 1, "machine": 3, "files": {}}', "[" * 50_000, "\xff"])
def test_a_list_that_makes_no_sense(folder, tmp_path, about):
    path = tmp_path / "loops.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("kernbench-cache.json", about.encode("latin-1"))
    with pytest.raises(CacheError, match="damaged"):
        sharing.bring(path)


def test_a_format_of_later(written):
    with pytest.raises(CacheError, match="format 2; this kernbench reads format 1"):
        sharing.bring(written(version=2))


def test_files_that_are_none(folder, tmp_path, written):
    (tmp_path / "text").write_text("hello")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("hello", "hello")
    for name, told in {"text": "damaged, or is no file", "other.zip": "it has no", "none": "cannot be read"}.items():
        with pytest.raises(CacheError, match=told):
            sharing.bring(tmp_path / name)
    whole = written().read_bytes()
    for length in range(0, len(whole), 97):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(CacheError):
            sharing.bring(tmp_path / "cut")
    assert lying(folder) == {}


def test_any_byte_that_is_changed_is_harmless(folder, tmp_path, written):
    whole = written().read_bytes()
    # every 13th with --full
    for at in range(0, len(whole), sampled.examples(53, 13)):
        (tmp_path / "changed").write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            sharing.bring(tmp_path / "changed")
        except CacheError:
            assert lying(folder) == {}
        else:
            # a date or another word that nobody reads
            assert lying(folder) == FILES
            sharing.clear()


def test_another_file_than_the_one_that_was_meant(folder, written):
    with pytest.raises(CacheError, match="not the file that was meant"):
        sharing.bring(written(), "0" * 64)
    assert lying(folder) == {}


def test_nothing_is_run_by_an_import(folder, written, tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    sharing.bring(written({"timing/a.b-1.py311.nbi": pickle.dumps(Bomb())}))
    sharing.kept()
    assert not (tmp_path / "exploded").exists()


def test_a_full_disk_leaves_nothing(folder, written, monkeypatch):
    def full(self, data):
        raise OSError(28, "No space left on device")

    source = written()
    monkeypatch.setattr(sharing.Path, "write_bytes", full)
    with pytest.raises(CacheError, match="No space left"):
        sharing.bring(source)
    assert lying(folder) == {}
    assert list(folder.iterdir()) == []


def test_loops_of_other_versions_go_only_if_asked(folder, keep):
    keep()
    other = folder.parent / "older"
    other.mkdir()
    (other / "file").write_bytes(b"12345")
    sharing.clear()
    assert lying(other) == {"file": b"12345"}
    assert sharing.clear(all_versions=True) == 5
    assert not other.exists()
    assert folder.exists()


def test_where_nothing_can_be_kept(monkeypatch):
    monkeypatch.setattr(compiled, "folder", lambda: "")
    with pytest.raises(CacheError, match="no compiled loops are kept"):
        sharing.kept()


LOOPS = """
import sys
from pathlib import Path
import numpy as np
from kernbench.common import compiled, sharing
compiled._PACKAGE, compiled.PACKAGES = Path(__file__).parent, ('.',)

@compiled.loop
def double(row):
    for at in range(row.size):
        row[at] *= 2

if __name__ == "__main__":
    if sys.argv[1] == "bring":
        sharing.bring(Path(sys.argv[2]))
    row = np.ones(2)
    double(row)
    print(row.tolist(), sum(double.stats.cache_hits.values()))
    if sys.argv[1] == "export":
        sharing.export(Path(sys.argv[2]))
"""


@pytest.mark.programs
def test_a_loop_that_was_compiled_elsewhere_is_called(tmp_path):
    def told(place, *words):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "loops.py").write_text(LOOPS)
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / place / "cache")}
        environment.pop("NUMBA_CACHE_DIR", None)
        command = [sys.executable, str(tmp_path / place / "loops.py"), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return done.stdout.strip()

    assert told("here", "export", str(tmp_path / "loops.zip")) == "[2.0, 2.0] 0"
    assert told("there", "bring", str(tmp_path / "loops.zip")) == "[2.0, 2.0] 1"
