"""cp.async that ignores its source where a predicate holds: it reads nothing there, and writes zeros."""

import numpy as np
import pytest
from tests.ptx.toolchain import need_ptxas, needs_ptxas, run_ptxas

from kernbench import ptx
from kernbench.ptx.validation.validation import problems

HEAD = """.version {version}
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 from, .param .u64 to)
{{
  .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;
  .shared .align 128 .b8 buffer[2048];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, buffer;
  ld.param.u64 %rd1, [from];
  ld.param.u64 %rd2, [to];
  mad.wide.u32 %rd3, %r0, 16, %rd1;
  mad.lo.u32 %r2, %r0, 16, %r1;
  mov.u32 %r10, 4;
"""
AFTER = """
  cp.async.wait_all;
  ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r2];
  mad.wide.u32 %rd4, %r0, 16, %rd2;
  st.global.v4.b32 [%rd4], {%r5, %r6, %r7, %r8};
"""
UPPER = "setp.ge.u32 %p1, %r0, 16;"
LOWER = "setp.lt.u32 %p1, %r0, 16;"


def module(body, version="8.0"):
    return ptx.parse(HEAD.format(version=version) + body + "\n  ret;\n}\n")


def launch(body, words=128, **options):
    """32 threads copy 16 bytes each of an array that may be shorter."""
    device = ptx.EmulatedDevice("sm_90a")
    source = np.arange(1, words + 1, dtype=np.uint32)
    arrays = [device.array(source, "source"), device.array(np.full((32, 4), 7, np.uint32), "target")]
    run = device.launch(module(body).kernels["kernel"], 1, 32, arrays, **options)
    return run, arrays[1].numpy()


def copied(words=128):
    """What each thread has: its words of the array where it has some, else zeros."""
    expected = np.zeros(128, np.uint32)
    expected[:words] = np.arange(1, words + 1)
    return expected.reshape(32, 4)


COPIES = [
    (UPPER, "cp.async.cg.shared.global [%r2], [%rd3], 16, %p1;"),
    (UPPER, "cp.async.ca.shared.global [%r2], [%rd3], 16, %p1;"),
    (LOWER, "cp.async.ca.shared.global [%r2], [%rd3], 16, !%p1;"),
    (UPPER, "cp.async.cg.shared.global.L2::cache_hint.L2::128B [%r2], [%rd3], 16, %p1, %rd1;"),
]


@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager", 1])
@pytest.mark.parametrize(("predicate", "copy"), COPIES)
@pytest.mark.parametrize("words", [64, 128])
def test_lanes_whose_predicate_holds_write_zeros_and_read_nothing(predicate, copy, words, schedule):
    """With 64 words the others would read behind the array."""
    run, got = launch(f"  {predicate}\n  {copy}{AFTER}", words, schedule=schedule)
    assert run.findings == []
    assert (got == copied(64)).all()


def test_lanes_that_do_not_ignore_their_source_are_held_to_its_bounds():
    run, _ = launch(f"  {LOWER}\n  {COPIES[0][1]}{AFTER}", 64)
    (finding,) = run.findings
    assert finding.kind == "out-of-bounds"
    assert "thread (16, 0, 0)" in finding.message
    assert "offset 256 of 'source'" in finding.message


def test_what_is_ignored_need_not_have_been_written():
    device = ptx.EmulatedDevice("sm_90a")
    source, target = device.empty((32, 4), "uint32", "source"), device.array(np.full((32, 4), 7, np.uint32), "target")
    kernel = module(f"  setp.ge.u32 %p1, %r0, 0;\n  {COPIES[0][1]}{AFTER}").kernels["kernel"]
    found = device.launch(kernel, 1, 32, [source, target]).findings
    # the array was made empty, and stays so
    assert [finding.kind for finding in found] == ["output-unwritten"]
    assert not target.numpy().any()


def test_zeros_are_written_at_the_wait_as_other_bytes_are():
    """Nobody may touch the destination before; and whoever else writes it races."""
    run, _ = launch(f"  {UPPER}\n  {COPIES[0][1]}" + AFTER.replace("  cp.async.wait_all;\n", ""))
    assert {finding.kind for finding in run.findings} == {"in-flight"}
    same = "  setp.ge.u32 %p1, %r0, 0;\n  cp.async.cg.shared.global [%r1], [%rd3], 16, %p1;\n  cp.async.wait_all;\n"
    run, _ = launch(f"{same}  bar.sync 0;\n  @%p1 st.shared.u32 [%r1], %r0;")
    assert "race" in {finding.kind for finding in run.findings}


@pytest.mark.parametrize("limit", ["%p1", "!%p1", "%r9"])
def test_what_decides_how_much_is_copied_must_be_set(limit):
    run, _ = launch(
        "  mov.u32 %r9, %r11;\n  setp.eq.u32 %p1, %r9, 3;\n"
        f"  cp.async.cg.shared.global [%r2], [%rd3], 16, {limit};{AFTER}"
    )
    (finding,) = run.findings
    assert finding.kind == "uninitialised-read"
    assert f"{limit.lstrip('!')} decides how much is copied, and was never set" in finding.message


def test_the_text_that_is_written_back_says_the_same():
    for _, copy in COPIES:
        parsed = module(f"  {copy}")
        assert copy in parsed.emit()
        assert ptx.parse(parsed.emit()) == parsed


SPELLINGS = {
    "cp.async.ca.shared.global [%r2], [%rd3], 8, %p1;": (True, False),
    "cp.async.ca.shared.global [%r2], [%rd3], 8, !%p1;": (True, False),
    "cp.async.ca.shared.global [%r2], [%rd3], 8, %r10;": (True, True),
    "cp.async.ca.shared.global [%r2], [%rd3], 8, 1;": (True, True),
    "cp.async.cg.shared.global.L2::cache_hint [%r2], [%rd3], 16, %p1, %rd1;": (True, False),
    # either how many bytes or whether any, not both
    "cp.async.cg.shared.global [%r2], [%rd3], 16, %r10, %p1;": (False, False),
    "cp.async.cg.shared.global [%r2], [%rd3], 16, 8, %p1;": (False, False),
    "cp.async.cg.shared.global [%r2], [%rd3], 16, !%r10;": (False, False),
}


@pytest.mark.parametrize("copy", SPELLINGS)
def test_which_spellings_there_are(copy):
    """With version 8.0 and, where the predicate is too young, 7.4 (which has no sm_90a)."""
    new, old = SPELLINGS[copy]
    assert (not list(problems(module(f"  {copy}")))) == new
    text = (HEAD.format(version="7.4") + f"  {copy}\n  ret;\n}}\n").replace("sm_90a", "sm_80")
    assert (not list(problems(ptx.parse(text)))) == old
    assert new == old or "needs .version 7.5" in str(next(iter(problems(ptx.parse(text)))))


@needs_ptxas
def test_ptxas_has_these_spellings():
    need_ptxas("sm_80", (7, 5))
    for copy, (new, old) in SPELLINGS.items():
        for version, taken in (("7.5", new), ("7.4", old)):
            text = (HEAD.format(version=version) + f"  {copy}\n  ret;\n}}\n").replace("sm_90a", "sm_80")
            _, log = run_ptxas(text, "sm_80")
            assert (log is None) == taken, (copy, version, log)
