"""`kernbench run` of a person's own file, as a process: what ends the bench is not taken for a verdict."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from kernbench.bench.discovery.new import filled_in
from kernbench.cli.processes.guard import runs_files

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="copies of a process are made on Linux only"),
    pytest.mark.programs,
]


@pytest.fixture
def write(tmp_path):
    def write(at_import="pass", in_launch="pass"):
        text = filled_in("mesh", "mine")
        text = text.replace("import numpy as np\n", f"import os, time\nimport numpy as np\n{at_import}\n", 1)
        (tmp_path / "mine.py").write_text(text.replace("torch):\n", f"torch):\n    {in_launch}\n", 1))

    return write


DEEP = "import sys; sys.setrecursionlimit(10**9); repr(type('E', (), {'__repr__': lambda self: repr([self])})())"

# Ctrl-C counts also where the tests were started in the background, which ignores it
INTERRUPTIBLE = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('kernbench', run_name='__main__', alter_sys=True)"
)


def kernbench(folder, *words, **options):
    command = [sys.executable, "-c", INTERRUPTIBLE, *words]
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "300"}
    environment.pop("KERNBENCH_START_METHOD", None)
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ({"in_launch": "os._exit(0)"}, ["exit code 0", "os._exit was called", "mine.py:55 in launch"]),
        ({"at_import": "import ctypes; ctypes.string_at(0)"}, ["SIGSEGV", "mine.py:7 in <module>"]),
        (
            {"in_launch": DEEP},
            ["SIGSEGV", "its stack overflowed", "stop the recursion there"],
        ),
    ],
)
def test_no_verdict_is_no_success(write, tmp_path, code, words):
    write(**code)
    process = kernbench(tmp_path, "run", "mine.py", "--json", "out.json")
    _, err = process.communicate()
    assert process.returncode == 1
    for word in ["there is no verdict", *words]:
        assert word in err
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["command"] == "run"
    assert told["error"]["place"]["file"].endswith("mine.py")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import builtins; builtins.len = lambda given: 3", "mine.py:7: builtins.len is not Python's own any more"),
        ("__builtins__.clear()", "and 1"),
        ("import sys; sys.modules.clear()", "mine.py:7: sys.modules lost"),
        ("import json; json.dumps = None", "mine.py:7: json.dumps is not Python's own any more"),
        ("np.random.default_rng = None", "mine.py:7: numpy.random.default_rng is not NumPy's own any more"),
        ("os.close(1); os.close(2)", "what was found could not be printed"),
        ("from kernbench import mesh; import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))", "Too many"),
        ("import signal; signal.alarm(1); time.sleep(9)", "SIGALRM of an alarm that it set itself"),
    ],
)
def test_a_file_that_takes_something_from_python_is_named(write, tmp_path, code, words):
    write(code)
    _, err = (process := kernbench(tmp_path, "run", "mine.py", "--set", "S=4", "--set", "d=4")).communicate()
    assert process.returncode in (1, 2)
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.setrecursionlimit(50)",
        "import sys; sys.stdout.close(); sys.stderr = None",
        "import tempfile; os.chdir(folder := tempfile.mkdtemp()); os.rmdir(folder)",
        "__file__ = 3",
    ],
)
def test_what_can_be_put_back_does_not_matter(write, tmp_path, code):
    write(code)
    out, err = (process := kernbench(tmp_path, "run", "mine.py", "--set", "S=4", "--set", "d=4")).communicate()
    assert process.returncode == 0, err
    assert "1 of 1 right and safe" in out


def test_a_verdict_is_kept_whatever_comes_at_the_end(write, tmp_path):
    write(
        "import atexit, threading; atexit.register(os._exit, 7)\n"
        "threading.Thread(target=time.sleep, args=(1e6,)).start()"
    )
    process = kernbench(tmp_path, "run", "mine.py", "--set", "S=4", "--set", "d=4")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "1 of 1 right and safe" in out


def test_a_debugger_has_the_terminal(write, tmp_path):
    write("breakpoint()")
    process = kernbench(tmp_path, "show", "mine.py", "--last", "0", "--no-source", stdin=subprocess.PIPE)
    out, _ = process.communicate("p 6 * 7\nc\n")
    assert "42" in out
    assert "attention" in out
    assert process.returncode == 0


def test_the_copy_ends_with_the_command(write, tmp_path):
    write(f"open({str(tmp_path / 'there')!r}, 'w').write(str(os.getpid())); time.sleep(1e9)")
    process = kernbench(tmp_path, "run", "mine.py")
    there = tmp_path / "there"
    while not (there.exists() and there.read_text()):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    while os.path.exists(f"/proc/{there.read_text()}"):
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_check_that_is_interrupted_writes_what_is_known(write, tmp_path, number):
    write()
    small = (tmp_path / "mine.py").read_text().replace("param(32,", "param(4,").replace("param(64,", "param(4,")
    (tmp_path / "a_good.py").write_text(small.replace('"mine"', '"a_good"'))
    write(f"open({str(tmp_path / 'there')!r}, 'w').write(str(os.getpid())); time.sleep(1e9)")
    process = kernbench(tmp_path, "check", ".", "--jobs", "1", "--junit", "out.xml", "--json", "out.json")
    there = tmp_path / "there"
    while not (there.exists() and there.read_text()):
        time.sleep(0.01)
    process.send_signal(number)
    out, _ = process.communicate()
    assert process.returncode == 130
    assert "1 of 1 right and safe" in out
    assert not os.path.exists(f"/proc/{there.read_text()}")
    told = json.loads((tmp_path / "out.json").read_text())
    assert [case["panel"] for case in told["cases"]] == ["a_good"]
    assert told["interrupted"]
    assert 'tests="1"' in (tmp_path / "out.xml").read_text()


def test_only_files_of_ones_own_are_guarded(monkeypatch):
    monkeypatch.setattr("kernbench.cli.processes.guard.is_descriptor", lambda stream, number: True)
    monkeypatch.setenv("KERNBENCH_START_METHOD", "fork")
    assert all(map(runs_files, [["a.py"], ["-k", "kernels", "-g", "golden"], ["-p", "x", "deep/a.py"]]))
    assert not any(map(runs_files, [[], ["paged_attention"], ["--help"]]))


def test_an_import_has_a_limit(write, tmp_path, monkeypatch):
    from kernbench.bench.discovery import modules
    from kernbench.bench.discovery.registry import load_file
    from kernbench.common.errors import BenchError

    monkeypatch.setattr(modules, "IMPORT_SECONDS", 0.5)
    # the clock of the test runner is the one that would ring
    before = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        for endless in (
            "while True: pass",
            "time.sleep(1e9)",
            "while True:\n    try: time.sleep(1)\n    except Exception: pass",
        ):
            write(endless)
            with pytest.raises(BenchError, match=r"mine\.py:\d+: could not be loaded: TooLateError: .* within 0.5 s"):
                load_file(tmp_path / "mine.py")
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
