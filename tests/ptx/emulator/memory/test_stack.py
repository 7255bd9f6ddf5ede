"""Memory that threads take as they run: alloca, stacksave, stackrestore."""

import numpy as np
import pytest
from tests.ptx.corpus import kernel_text

from kernbench import ptx

# each thread takes n words, writes them, and adds them up backwards
SUM = """
ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mad.wide.u32 %rd1, %r1, 4, %rd1;
stacksave.u64 %rd5;
add.u32 %r2, %r1, 1; mul.wide.u32 %rd2, %r2, 4; alloca.u64 %rd3, %rd2, 8;
mov.u32 %r3, 0;
FILL: mad.wide.u32 %rd4, %r3, 4, %rd3; st.local.u32 [%rd4], %r3; add.u32 %r3, %r3, 1; setp.lt.u32 %p1, %r3, %r2;
@%p1 bra FILL;
mov.u32 %r4, 0;
SUM: sub.u32 %r3, %r3, 1; mad.wide.u32 %rd4, %r3, 4, %rd3; ld.local.u32 %r5, [%rd4]; add.u32 %r4, %r4, %r5;
setp.ne.u32 %p1, %r3, 0; @%p1 bra SUM;
stackrestore.u64 %rd5;
st.global.u32 [%rd1], %r4;
"""
TAKES = """.func takes(.param .u64 q) {
.reg .u64 %a, %b, %c; .reg .u32 %r;
ld.param.u64 %c, [q]; alloca.u64 %a, 4096, 16; cvta.local.u64 %b, %a; mov.u32 %r, 7; st.u32 [%b+4092], %r;
ld.u32 %r, [%b+4092]; st.global.u32 [%c], %r; ret; }"""
CALLS = """
ld.param.u64 %rd1, [p]; mov.u32 %r1, 0;
AGAIN: { .param .u64 q; st.param.u64 [q], %rd1; call takes, (q); }
add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 9; @%p1 bra AGAIN;
"""


def launch(text, threads=32):
    device = ptx.EmulatedDevice("sm_100a")
    out = device.array(np.zeros(threads, np.uint32), "out")
    run = device.launch(ptx.parse(text).kernels["k"], 1, threads, [out])
    return run, out.numpy()


def test_every_thread_takes_another_size():
    run, out = launch(kernel_text(SUM))
    assert run.findings == []
    assert out.tolist() == [n * (n + 1) // 2 for n in range(32)]


def test_what_a_function_took_ends_with_it():
    run, out = launch(kernel_text(CALLS, before=TAKES), 1)
    assert run.findings == []
    assert out[0] == 7


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ((" alloca.u64 %rd3, %rd2, 8;", " alloca.u64 %rd3, 1000000, 8;"), "misuse", "a thread's stack has 16384 bytes"),
        (("st.local.u32 [%rd4], %r3; ", ""), "uninitialised-read", "%r4 is stored, and comes from local memory"),
        (("st.local.u32 [%rd4], %r3;", "st.local.u32 [%rd4+4], %r3;"), "out-of-bounds", "local memory"),
        (
            ("stackrestore.u64 %rd5;", "stackrestore.u64 %rd5; ld.local.u32 %r9, [%rd3];"),
            "out-of-bounds",
            "local memory",
        ),
    ],
)
def test_misuse(change, kind, words):
    assert change[0] in SUM
    run, _ = launch(kernel_text(SUM.replace(*change)))
    assert any(f.kind == kind and words in f.message for f in run.findings), run.findings


def test_a_call_by_another_name():
    before = """.visible .func (.param .b32 r) twice(.param .b32 x);
.visible .func (.param .b32 r) double(.param .b32 x) {
.reg .b32 %r<2>; ld.param.b32 %r0, [x]; add.u32 %r0, %r0, %r0; st.param.b32 [r], %r0; ret; }
.alias twice, double;"""
    body = """ld.param.u64 %rd1, [p]; { .param .b32 x; .param .b32 r; mov.b32 %r1, 21; st.param.b32 [x], %r1;
call (r), twice, (x); ld.param.b32 %r2, [r]; } st.global.u32 [%rd1], %r2;"""
    run, out = launch(kernel_text(body, before=before), 1)
    assert run.findings == []
    assert out[0] == 42
