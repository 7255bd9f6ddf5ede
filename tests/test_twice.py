"""Launches that run twice: a planted difference of every part is said, and equal launches have none."""

import numpy as np
import pytest
from tests import sampled, twice
from tests.twice import compared, differs

from kernbench import ptx
from kernbench.ptx.emulator.checks.findings.reporter import Reporter
from kernbench.ptx.emulator.fast_paths import EVERY
from kernbench.ptx.emulator.memory.port import Port
from kernbench.ptx.emulator.program.meter import Meter

# it runs the other way by itself
pytestmark = pytest.mark.fast_paths

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry twofold(.param .u64 source, .param .u64 target)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [source];
  ld.param.u64 %rd2, [target];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd3, %r0, 4;
  add.u64 %rd1, %rd1, %rd3;
  add.u64 %rd2, %rd2, %rd3;
  ld.global.u32 %r1, [%rd1];
  add.u32 %r1, %r1, %r1;
  st.global.u32 [%rd2], %r1;
  ret;
}
"""


def launched(threads=64, **options):
    """A launch of 64 threads, or of more than there are elements."""
    device = ptx.EmulatedDevice("sm_90a")
    source, target = device.array(np.arange(64, dtype=np.uint32), "source"), device.empty(64, np.uint32, "target")
    return device.launch(ptx.parse(TEXT).kernels["twofold"], 1, threads, [source, target], **options), target.numpy()


# faults are planted in other fast paths, which the executor does not take
OTHERS = "-executor"


def said(threads=64, which=False, record=False, first=EVERY, **options):
    """What is said of one launch; the program sees the run of the first setting."""
    with compared(first, which=which, record=record, say=lambda text: None) as found:
        run, target = launched(threads, **options)
    assert found.compared == 1
    return run, target, found.differences


@pytest.mark.parametrize("options", [{}, {"checks": False}, {"threads": 65}, {"record": True}, {"order": True}])
def test_equal_launches_have_no_difference(options):
    run, target, differences = said(**options)
    assert differences == []
    assert (target == 2 * np.arange(64)).all()
    assert [one.kind for one in run.findings] == (["out-of-bounds"] * 2 if "threads" in options else [])


def test_another_output_is_said_with_the_fast_path_that_makes_it(monkeypatch):
    load = Port._is_loaded

    def wrong(self, part, where, registers, rows, lanes, active):
        found = load(self, part, where, registers, rows, lanes, active)
        registers[rows[0], lanes[3]] += found
        return found

    monkeypatch.setattr(Port, "_is_loaded", wrong)
    run, _, (text,) = said(which=True, first=OTHERS)
    assert run.outputs["target"][3] == 8
    assert text.startswith("launch 1, twofold (grid (1, 1, 1), block (64, 1, 1), schedule ")
    assert text.endswith(
        "outputs, target: at [3] np.uint32(8) and np.uint32(6); 1 of 64 elements differ "
        "(fast paths that make a difference: word_loads)"
    )


def test_other_words_of_a_finding_and_other_counts_are_said(monkeypatch):
    add, count = Reporter.add, Meter.count

    def louder(self, kind, site, message, *more, **options):
        return add(self, kind, site, message + "!" * fast(), *more, **options)

    def fast():
        return twice.os.getpid() == here

    here = twice.os.getpid()
    monkeypatch.setattr(Reporter, "add", louder)
    _, _, (text,) = said(65)
    assert "findings[0], message: " in text
    monkeypatch.setattr(Reporter, "add", add)
    monkeypatch.setattr(Meter, "count", lambda self, *given: [count(self, *given) for _ in range(1 + fast())])
    _, _, (text,) = said(first=OTHERS)
    assert ", commands: " in text or "metrics" in text


def test_an_error_of_one_way_is_said_and_raised(monkeypatch):
    here = twice.os.getpid()

    def fails(self, *given):
        if twice.os.getpid() == here:
            raise RuntimeError("planted")

    monkeypatch.setattr(Meter, "count", fails)
    with compared(OTHERS, say=lambda text: None) as found, pytest.raises(RuntimeError, match="planted"):
        launched()
    assert "error: 'RuntimeError: planted' and" in found.differences[0]


def test_where_values_differ():
    assert differs({"a": [1, 2]}, {"a": [1, 2]}, "views") == ""
    assert differs({"a": [1, 2]}, {"a": [1, 3]}, "views") == "views, a[1]: 2 and 3"
    assert differs([1], [1, "x"], "findings") == "findings: 1 and 2; the first that only one has: 'x'"
    assert differs({}, {"b": 1}, "views") == "views: only the second has b: 1"
    assert differs({0: 1}, {}, "memory") == "memory: only the first has block at offset 0: 1"
    assert differs(1, 1.0, "metrics") == "metrics: 1 and 1.0"
    assert differs(float("nan"), float("nan"), "metrics") == ""
    one, other = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    other[1, 2] = -0.0
    assert differs(one, other, "o") == "o: at [1, 2] np.float32(0.0) and np.float32(-0.0); 1 of 6 elements differ"
    assert differs(one, other[:1], "o") == "o: float32[2, 3] and float32[1, 3]"
    assert differs(np.zeros(0), np.zeros(0), "o") == ""


def test_random_programs_are_the_same_by_plain_code(capsys):
    """`python -m tests.twice random` runs as many as one likes."""
    first, last = 300, 300 + sampled.examples(10, 100)
    assert twice.main(["random", f"{first}-{last - 1}"]) == 0
    assert "launches under 'all' and 'none': no difference" in capsys.readouterr().out


def test_a_program_runs_as_on_the_command_line(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nimport numpy as np\nfrom kernbench import ptx\n"
        f"kernel = ptx.parse({TEXT!r}).kernels['twofold']\n"
        "device = ptx.EmulatedDevice('sm_90a')\n"
        "given = [device.array(np.arange(64, dtype=np.uint32)), device.empty(64, np.uint32)]\n"
        "for _ in range(int(sys.argv[1])): device.launch(kernel, 1, 64, given)\n"
    )
    assert twice.main(["--first", "all", "--second", "all,-word_loads", "--", str(program), "3"]) == 0
    assert "3 launches under 'all' and 'all,-word_loads': no difference" in capsys.readouterr().out


def test_a_program_without_launches_and_one_that_fails_are_told_apart_from_one_that_is_the_same(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text("print('nothing')\n")
    assert twice.main(["--", str(program)]) == 2
    program.write_text("import sys\nsys.exit(4)\n")
    assert twice.main(["--", str(program)]) == 4
    assert "0 launches under 'all' and 'none': no difference\nthe program ended with 4\n" in capsys.readouterr().out
