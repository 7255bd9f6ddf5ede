"""Benches that end, crash, block or spoil the process they run in are cases that failed; the others still run."""

import os
import sys
import time

import pytest
from tests import sampled

from kernbench.bench.checking.check import Conditions, check_files, default_memory
from kernbench.bench.discovery.new import filled_in
from kernbench.common.errors import BenchError

pytestmark = pytest.mark.programs

SMALL = {"param(4,": "param(2,", "param(32,": "param(4,", "param(64,": "param(4,"}
HOSTILE_IMPORT = {
    "leaves": "os._exit(0)",
    "exits": "raise SystemExit(0)",
    "odd": "raise type('OddError', (BaseException,), {})('odd')",
    "interrupts": "raise KeyboardInterrupt",
    "spoils": "os.chdir('/'); os.environ.clear(); sys.stdout.close(); sys.path.clear(); sys.modules.pop('numpy')",
    "scribbles": "[os.write(n, b'x') for n in range(1, 400) if os.path.exists(f'/dev/fd/{n}')]",
}
HOSTILE_LAUNCH = {
    "leaves_later": "os._exit(0)",
    "crashes": "import ctypes; ctypes.string_at(0)",
    "recurses": "sys.setrecursionlimit(10**9); repr(type('E', (), {'__repr__': lambda self: repr([self])})())",
    "killed": "os.kill(os.getpid(), 9)",
    "debugged": "breakpoint()",
    "hungry": "np.empty(1 << 50)",
}
HARMLESS = {
    "forks": "os.fork()",
    "threads": "import threading; threading.Thread(target=time.sleep, args=(1e6,)).start()",
    "starts": "import subprocess; subprocess.Popen(['sleep', '100000'])",
    "closes": "os.close(1); os.close(2)",
    "leaves_at_exit": "import atexit; atexit.register(os._exit, 0)",
    "patches": "import json; json.dumps = lambda *_, **__: '{}'; sys.stdout = sys.stderr = None",
    "talks": "[os.write(1, b'y' * (1 << 20)) for _ in range(32)]",
}


@pytest.fixture
def write(tmp_path):
    """Writes a small bench of the mesh with a statement when it is imported, or in its launch."""
    template = filled_in("mesh", "template")
    for old, new in SMALL.items():
        template = template.replace(old, new)
    (tmp_path / "benches").mkdir()

    def write(name, at_import="pass", in_launch="pass", **changes):
        text = template.replace('"template"', f'"{name}"').replace(
            "import numpy as np\n", f"import os, sys, time\nimport numpy as np\n{at_import}\n", 1
        )
        text = text.replace("torch):\n", f"torch):\n    {in_launch}\n", 1)
        for old, new in changes.values():
            assert old in text
            text = text.replace(old, new)
        file = tmp_path / "benches" / f"{name}.py"
        file.write_text(text)
        return file

    return write


def checked(files, **how):
    return {f"{case.file.stem}::{case.panel}": case for case in check_files(files, Conditions(**how))}


def test_hostile_benches_fail_and_the_others_run(write):
    files = [write("a_good")]
    files += [write(name, at_import=code) for name, code in HOSTILE_IMPORT.items()]
    files += [write(name, in_launch=code) for name, code in HOSTILE_LAUNCH.items()]
    files += [write("z_good")]
    cases = checked(files, jobs=2)
    assert [name.split("::")[0] for name in cases] == [file.stem for file in files]
    assert [name for name, case in cases.items() if case.passed] == ["a_good::a_good", "z_good::z_good"]
    for name, words in {
        "leaves::load": ["exit code 0", "os._exit was called", "leaves.py:7 in <module>", "next: "],
        "exits::load": ["exits.py:7: could not be loaded: SystemExit: 0"],
        "odd::load": ["odd.py:7: could not be loaded: OddError: odd"],
        "interrupts::load": ["interrupts.py:7: it raised KeyboardInterrupt"],
        "scribbles::load": ["descriptor", "next: "],
        "leaves_later::leaves_later": ["exit code 0", "in launch"],
        "crashes::crashes": ["SIGSEGV", "in launch", "next: look at the call into C code"],
        "recurses::recurses": ["SIGSEGV", "its stack overflowed", "next: stop the recursion there"],
        "killed::killed": ["SIGKILL", "memory"],
        "debugged::debugged": ["breakpoint() has no terminal", "kernbench run"],
        "hungry::hungry": ["MemoryError", "of --max-memory", "next: a smaller size"],
    }.items():
        for word in words:
            assert word in cases[name].error, cases[name].error


def test_what_does_no_harm_to_the_verdict(write):
    files = [write(name, in_launch=code) for name, code in HARMLESS.items()]
    cases = checked(files, jobs=2)
    assert all(case.passed for case in cases.values()), [case.error for case in cases.values()]
    assert len(cases) == len(HARMLESS)


def test_kernels_that_take_more_than_the_limit_have_no_verdict(write):
    """On each target, in what a kernel is made of there: neither right nor wrong."""
    (folder,) = {write("on_mesh").parent}
    taking = {"mesh": "on_mesh.py", "npu": "on_npu.py", "ptx": "on_ptx.py"}
    lines = {"mesh": "*, tl):\n", "npu": "(core, q, k, s):\n", "ptx": "def program(ctx):\n"}
    files = []
    for target, name in taking.items():
        text = filled_in(target, f"on_{target}")
        assert lines[target] in text
        indent = " " * (8 if target == "ptx" else 4)
        files.append(folder / name)
        files[-1].write_text(text.replace(lines[target], f"{lines[target]}{indent}taken = bytearray(3 << 30)\n", 1))
    cases = checked(files, jobs=1, memory=1 << 30)
    assert [case.run for case in cases.values()] == [None, None, None]
    for (name, case), file in zip(cases.items(), files, strict=True):
        line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "taken =" in text)
        bench = name.partition("::")[0]
        assert case.error == (
            f"{file}:{line}: out of memory: launch of bench {bench} takes more than the 1 GiB of --max-memory\n"
            "  next: a smaller size, or more with --max-memory SIZE"
        )


def test_verdicts_are_the_same_whatever_runs_at_once(write):
    """On each target, right and wrong: all that a case says but its seconds."""
    files = [write("a_good"), write("crashes", in_launch=HOSTILE_LAUNCH["crashes"])]
    for target in ("npu", "ptx"):
        files.append(files[0].parent / f"on_{target}.py")
        files[-1].write_text(filled_in(target, f"on_{target}"))
    found = []
    for jobs in sampled.some((1, 2, 16), 2):
        cases = checked(files, jobs=jobs)
        runs = {name: case.run.to_dict() for name, case in cases.items() if case.run is not None}
        found.append(([(name, case.passed, case.error) for name, case in cases.items()], runs))
    assert all(one == found[0] for one in found)
    assert [passed for _, passed, _ in found[0][0]] == [True, False, True, True]


def test_endless_loops(write, tmp_path):
    """The clock jumps once a bench is where it stays, so that no load can make this fail.

    A second before, it has come to the step whose seconds count: a jump before that would not be seen.
    """
    marks = [tmp_path / f"there{n}" for n in range(3)]
    stay = ["while True: pass", "time.sleep(1e9)", "while True: pass"]
    begin = "time.sleep(1)\n{{0}}open({!r}, 'w').close()\n{{0}}{}"
    code = [begin.format(str(mark), loop) for mark, loop in zip(marks, stay, strict=True)]
    files = [write("loops", at_import=code[0].format(""))]
    files += [write("sleeps", at_import=code[1].format(""))]
    files += [write("launches", in_launch=code[2].format("    ")), write("z_good")]

    def clock():
        return time.monotonic() + 10_000 * sum(mark.exists() for mark in marks)

    cases = checked(files, jobs=1, clock=clock)
    assert [case.passed for case in cases.values()] == [False, False, False, True]
    assert "importing it did not end within 120 s; it was at" in cases["loops::load"].error
    assert "loops.py:9 in <module>" in cases["loops::load"].error
    assert "sleeps.py:9 in <module>" in cases["sleeps::load"].error
    assert "running launches did not end within 600 s; it was at" in cases["launches::launches"].error
    assert "--max-seconds" in cases["launches::launches"].error


def test_a_panel_that_ends_the_process_leaves_the_others(write):
    panels = ("inputs, golden, host, launch", "inputs, golden, host, launch, {n: {'S': i} for i, n in PANELS}")
    names = (
        "class Parameters",
        "PANELS = [(3, 'one'), (5, 'two'), (7, 'three')]\n@dataclass(frozen=True)\nclass Parameters",
    )
    file = write("several", in_launch="os._exit(0) if p.S == 5 else None", panels=panels, names=names)
    file.write_text(file.read_text().replace("@dataclass(frozen=True)\nPANELS", "PANELS"))
    cases = checked([file])
    assert {name: case.passed for name, case in cases.items()} == {
        "several::one": True,
        "several::two": False,
        "several::three": True,
    }


def test_output_is_kept_with_what_failed(write):
    (case,) = checked([write("bad", at_import="print('something to say'); os._exit(4)")]).values()
    assert "exit code 4" in case.error
    assert case.output == "something to say"


def test_a_fresh_interpreter_does_the_same(write, monkeypatch):
    monkeypatch.setenv("KERNBENCH_START_METHOD", "spawn")
    cases = checked([write("good"), write("leaves", at_import="os._exit(0)")], jobs=2)
    assert [case.passed for case in cases.values()] == [True, False]


def test_findings_come_back_with_their_source(write):
    extra = ("    tl.store(o_ptr", '    tl.send(dir="E", src=k)\n    tl.store(o_ptr')
    (case,) = checked([write("bad", extra=extra)]).values()
    (finding,) = case.run.findings
    assert finding.kind == "message-unreceived"
    assert len(finding.where.context()) == 5


def test_limits_make_sense():
    with pytest.raises(BenchError, match="positive"):
        Conditions(seconds=0)
    if sys.platform == "linux":
        assert default_memory(1) >= default_memory(64) >= 2 << 30


def test_nothing_of_a_stopped_check_stays(write, tmp_path):
    mark = tmp_path / "there"
    code = f"open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(1e9)"
    coming = check_files([write("a_good"), write("sleeps", at_import=code)], Conditions(jobs=2))
    assert next(coming).passed
    while not (mark.exists() and mark.read_text()):
        time.sleep(0.01)
    coming.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)
