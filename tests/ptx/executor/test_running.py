"""Launches by the executor: the same outcome as by the emulator, which judges whatever is suspect."""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.ptx.executor import block_state, running

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 given, .param .u64 out, .param .u32 n)
{
  .reg .pred %p<4>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<8>;
  .shared .align 16 .b8 buffer[1024];
  ld.param.u64 %rd0, [given]; ld.param.u64 %rd1, [out]; ld.param.u32 %r9, [n];
  mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x;
  mad.lo.u32 %r3, %r1, %r2, %r0;
  mul.wide.u32 %rd2, %r3, 4;
  add.u64 %rd3, %rd0, %rd2; add.u64 %rd4, %rd1, %rd2;
  shl.b32 %r4, %r0, 2;
  mov.u32 %r5, buffer;
  add.u32 %r6, %r5, %r4;
"""
LOAD = "  ld.global.u32 %r10, [%rd3];\n"
STORE = "  st.global.u32 [%rd4], %r10;\n"
TO_SHARED = "  st.shared.u32 [%r6], %r10;\n"
# the value of the next thread of the block, the first one's for the last
FROM_NEXT = """  add.u32 %r11, %r0, 1; rem.u32 %r11, %r11, %r2; shl.b32 %r11, %r11, 2; add.u32 %r11, %r5, %r11;
  ld.shared.u32 %r10, [%r11];
"""
BARRIER, MEET = "  bar.sync 0;\n", "  bar.warp.sync -1;\n"
COPY = "  cp.async.ca.shared.global [%r6], [%rd3], 4;\n  cp.async.commit_group;\n"
WAIT = "  cp.async.wait_group 0;\n"
# bodies in which nothing is wrong
CLEAN = {
    "copy": LOAD + STORE,
    "bounded": "  setp.ge.u32 %p0, %r3, %r9;\n  @%p0 bra DONE;\n" + LOAD + STORE + "DONE:\n",
    "guarded": "  setp.lt.u32 %p0, %r0, 7;\n  mov.u32 %r10, 5;\n  @%p0 ld.global.u32 %r10, [%rd3];\n" + STORE,
    "branches": LOAD
    + "  and.b32 %r11, %r0, 3;\n  setp.eq.u32 %p1, %r11, 1;\n  @%p1 bra ODD;\n  add.u32 %r10, %r10, 9;\n  bra MET;\n"
    + "ODD:\n  mul.lo.u32 %r10, %r10, 3;\nMET:\n"
    + STORE,
    "loop": LOAD + "  mov.u32 %r12, 0;\nAGAIN:\n  add.u32 %r10, %r10, %r12;\n  add.u32 %r12, %r12, 1;\n"
    "  setp.le.u32 %p1, %r12, %r0;\n  @%p1 bra AGAIN;\n" + STORE,
    "exchange": LOAD + TO_SHARED + BARRIER + FROM_NEXT + STORE,
    "twice": LOAD + TO_SHARED + BARRIER + FROM_NEXT + BARRIER + TO_SHARED + BARRIER + FROM_NEXT + STORE,
    "own": LOAD + TO_SHARED + "  ld.shared.u32 %r11, [%r6];\n  add.u32 %r10, %r10, %r11;\n" + TO_SHARED + STORE,
    "copies": COPY + WAIT + BARRIER + FROM_NEXT + STORE,
    "shuffle": LOAD + "  shfl.sync.bfly.b32 %r10, %r10, 3, 31, -1;\n" + STORE,
    "vote": LOAD + "  setp.gt.u32 %p1, %r10, 40;\n  vote.sync.ballot.b32 %r10, %p1, -1;\n" + STORE,
    "atomic": LOAD + "  atom.global.add.u32 %r10, [%rd1], %r10;\n",
    "same value": "  mov.u32 %r10, 7;\n  st.shared.u32 [%r5], %r10;\n"
    + BARRIER
    + "  ld.shared.u32 %r10, [%r5];\n"
    + STORE,
    "division": LOAD + "  add.u32 %r11, %r0, 1;\n  div.u32 %r10, %r10, %r11;\n  rem.s32 %r11, %r10, 7;\n" + STORE,
}
# the same with one thing wrong: the kind of the finding
FAULTY = {
    "no barrier": (LOAD + TO_SHARED + FROM_NEXT + STORE, "race"),
    "a barrier too late": (LOAD + TO_SHARED + FROM_NEXT + BARRIER + STORE, "race"),
    "written before it was read": (LOAD + TO_SHARED + BARRIER + FROM_NEXT + TO_SHARED + STORE, "race"),
    "a warp alone": (LOAD + TO_SHARED + MEET + FROM_NEXT + STORE, "race"),
    "no wait": (COPY + BARRIER + FROM_NEXT + STORE, "in-flight"),
    "no commit": ("  cp.async.ca.shared.global [%r6], [%rd3], 4;\n" + WAIT + BARRIER + FROM_NEXT + STORE, "in-flight"),
    "different values": (LOAD + "  st.shared.u32 [%r5], %r10;\n" + BARRIER + STORE, "race"),
    "one element for all": (LOAD + "  st.global.u32 [%rd1], %r10;\n", "race"),
    "read and added": (LOAD + "  red.global.add.u32 [%rd1], 1;\n  ld.global.u32 %r10, [%rd1];\n" + STORE, "race"),
    "behind the end": (LOAD + "  st.global.u32 [%rd4+4096], %r10;\n", "out-of-bounds"),
    "before the begin": ("  ld.global.u32 %r10, [%rd3-64];\n" + STORE, "out-of-bounds"),
    "the other array": ("  sub.u64 %rd5, %rd1, %rd0;\n  ld.global.u32 %r10, [%rd3+4096];\n" + STORE, "out-of-bounds"),
    "behind the buffer": (LOAD + "  st.shared.u32 [%r6+1000], %r10;\n" + STORE, "out-of-bounds"),
    "odd": (LOAD + "  st.global.u32 [%rd4+2], %r10;\n", "misaligned"),
    "nobody wrote": (BARRIER + FROM_NEXT + STORE, "uninitialised-read"),
    "unset": ("  add.u32 %r10, %r20, 1;\n" + STORE, "uninitialised-read"),
    "by zero": (LOAD + "  div.u32 %r10, %r10, %r0;\n" + STORE, "division"),
    "half a warp": (
        LOAD + "  setp.lt.u32 %p1, %r0, 16;\n  @%p1 shfl.sync.bfly.b32 %r10, %r10, 1, 31, -1;\n" + STORE,
        "warp-mask",
    ),
}
# bodies that are suspect, and right
SUSPECT = {
    "some come": LOAD + "  setp.lt.u32 %p1, %r0, 32;\n  @%p1 bar.sync 0;\n" + STORE,
    "not waited for": LOAD + STORE + COPY,
}


def launched(body, way):
    """The run of a body over 3 blocks of 64 threads, what is in memory then, and what it was."""
    device = ptx.EmulatedDevice("sm_80", fast_paths=way)
    given = device.array(np.arange(3, 195, dtype=np.uint32), "given")
    out = device.array(np.full(192, 11, np.uint32), "out")
    kernel = ptx.parse(HEAD + body + "  ret;\n}\n").kernels["kernel"]
    run = device.launch(kernel, 3, 64, [given, out, 150])
    return run, given.numpy(), out.numpy()


@pytest.fixture
def attempts(monkeypatch):
    """Whether the executor ran each launch."""
    found = []
    go = running._Run.go

    def counted(run):
        found.append(go(run))
        return found[-1]

    monkeypatch.setattr(running._Run, "go", counted)
    return found


def same(one, two):
    """Whether two launches had one outcome; steps are of the way in which they ran."""
    first, second = one[0], two[0]
    assert [(f.kind, f.message, f.count) for f in first.findings] == [
        (f.kind, f.message, f.count) for f in second.findings
    ]
    assert {**first.metrics, "steps": 0} == {**second.metrics, "steps": 0}
    assert first.outputs.keys() == second.outputs.keys()
    for array, other in zip(one[1:], two[1:], strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.fast_paths
@pytest.mark.parametrize("body", CLEAN.values(), ids=CLEAN)
def test_clean_launches_are_run(body, attempts):
    run = launched(body, "all")
    assert attempts == [True]
    assert run[0].findings == []
    same(run, launched(body, "-executor"))


@pytest.mark.fast_paths
@pytest.mark.parametrize(("body", "kind"), FAULTY.values(), ids=FAULTY)
def test_faults_are_found_as_by_the_emulator(body, kind, attempts):
    run = launched(body, "all")
    assert True not in attempts
    assert [finding.kind for finding in run[0].findings][:1] == [kind]
    same(run, launched(body, "-executor"))


@pytest.mark.fast_paths
@pytest.mark.parametrize("body", SUSPECT.values(), ids=SUSPECT)
def test_what_is_suspect_and_right_has_no_finding(body, attempts):
    run = launched(body, "all")
    assert attempts == [False]
    assert run[0].findings == []
    same(run, launched(body, "-executor"))


@pytest.mark.fast_paths
def test_a_suspect_in_a_late_block_leaves_nothing_behind(attempts):
    """Blocks before it have written; the emulator begins with memory as it was."""
    body = LOAD + "  add.u32 %r10, %r10, 1;\n  st.global.u32 [%rd3], %r10;\n"
    body += "  setp.eq.u32 %p1, %r1, 2;\n  @%p1 st.global.u32 [%rd4+400], %r10;\n"
    run = launched(body, "all")
    assert attempts == [False]
    assert run[1].tolist() == list(range(4, 196))
    same(run, launched(body, "-executor"))


@pytest.mark.fast_paths
def test_a_launch_after_a_launch_knows_nothing_of_it(attempts):
    device = ptx.EmulatedDevice("sm_80")
    given, out = device.array(np.arange(192, dtype=np.uint32)), device.array(np.zeros(192, np.uint32))
    kernel = ptx.parse(HEAD + LOAD + STORE + "  ret;\n}\n").kernels["kernel"]
    assert all(device.launch(kernel, 3, 64, [*pair, 192]).findings == [] for pair in ([given, out], [out, given]) * 3)
    assert attempts == [True] * 6


@pytest.mark.fast_paths
def test_arrays_that_are_partly_written_are_looked_at_byte_by_byte(attempts):
    device = ptx.EmulatedDevice("sm_80")
    kernel = ptx.parse(HEAD + CLEAN["bounded"] + "  ret;\n}\n").kernels["kernel"]
    given = device.array(np.arange(192, dtype=np.uint32))
    half, out = device.empty(192, np.uint32, "half"), device.empty(192, np.uint32, "out")
    assert [f.kind for f in device.launch(kernel, 3, 64, [given, half, 100]).findings] == ["output-unwritten"]
    assert [f.kind for f in device.launch(kernel, 3, 64, [half, out, 100]).findings] == ["output-unwritten"]
    assert attempts == [True, True]
    assert "uninitialised-read" in [f.kind for f in device.launch(kernel, 3, 64, [half, out, 101]).findings]
    assert attempts == [True, True, False]


@pytest.mark.fast_paths
def test_an_endless_loop_is_left_to_the_emulator(attempts, monkeypatch):
    monkeypatch.setattr(block_state, "_BUDGET", 1000)
    run = launched("AGAIN:\n  bra AGAIN;\n", "all")
    assert attempts == [False]
    assert [finding.kind for finding in run[0].findings] == ["endless-loop"]


@pytest.mark.fast_paths
def test_a_kernel_that_is_suspect_each_time_is_not_tried_for_ever(attempts):
    device = ptx.EmulatedDevice("sm_80")
    given, out = device.array(np.arange(192, dtype=np.uint32)), device.array(np.zeros(192, np.uint32))
    # texts of their own, as programs are kept by what they say
    suspect, clean = (
        ptx.parse(HEAD + body + "  ret;\n}\n// again\n").kernels["kernel"]
        for body in (SUSPECT["some come"], CLEAN["copy"])
    )
    assert all(device.launch(suspect, 3, 64, [given, out, 192]).findings == [] for _ in range(6))
    assert attempts == [False] * 3
    half = device.empty(192, np.uint32)
    kinds = [bool(device.launch(clean, 3, 64, [one, out, 192]).findings) for one in [given] + [half] * 5 + [given]]
    assert kinds == [False] + [True] * 5 + [False]
    assert attempts[3:] == [True] + [False] * 5 + [True]
