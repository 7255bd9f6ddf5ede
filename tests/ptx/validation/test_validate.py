"""What a module may not say, word for word, and what it may."""

import pytest
from tests.ptx.corpus import MIXED, kernel_text

from kernbench import ptx
from kernbench.ptx.validation.validation import problems, validate

BEFORE = (
    ".global .align 4 .b8 gv[64]; .extern .shared .b8 sm[]; "
    ".func (.param .b32 r) f(.param .b64 a, .param .b32 b) { ret; } .extern .func plain;"
)


def messages(body: str, **more: str) -> list[str]:
    return [problem.message for problem in problems(ptx.parse(kernel_text(body, before=BEFORE, **more)))]


def test_a_whole_module_is_clean():
    assert [str(problem) for problem in problems(ptx.parse(MIXED))] == []


def test_what_is_wrong_is_told_every_time_and_what_is_good_is_looked_at_once(monkeypatch):
    wrong, good = ptx.parse(kernel_text("add.u32 %r1, %r2;")), ptx.parse(MIXED)
    for _ in range(2):
        with pytest.raises(ptx.PtxError, match="takes the operands"):
            validate(wrong)
    validate(good)
    monkeypatch.setattr("kernbench.ptx.validation.validation.problems", None)
    validate(good)


@pytest.mark.parametrize(
    "body",
    [
        "add.u32 %r1, %r2, -1;",
        "add.f32 %r1, %f1, 1.0;",
        "mov.b32 %f1, %r1;",
        "mov.b32 %r1, 0f3F800000;",
        "ld.global.u8 %rd1, [%rd2];",
        "ld.global.b16 %f1, [%rd2];",
        "st.global.u8 [gv+3], %r1;",
        "ld.shared.u32 %r1, [sm];",
        "ld.shared.u32 %r1, [%r2];",
        "mov.b64 %rd1, 1.0;",
        "mov.u64 %rd1, gv+8;",
        "mov.u64 %rd1, f;",
        "mov.u32 %r1, %tid.x;",
        "mov.u16 %h1, %tid.x;",
        "cvt.u64.u32 %rd1, %tid.x;",
        "cvt.rzi.u32.f32 %rd1, %r1;",
        "setp.eq.u32 %p1|_, %r1, %r2;",
        "atom.global.add.u32 _, [%rd1], 1;",
        "mov.b64 {_, %r1}, %rd1;",
        "{ .reg .u32 %r1; L: mov.u32 %r1, 1; bra L; } { L: bra L; }",
        "bra later; later: mov.u32 %r1, 2;",
        ".reg .v4 .f32 %v; ld.global.v4.f32 %v, [%rd1]; mov.f32 %f1, %v.w;",
        ".param .b64 a; .param .b32 b; .param .b32 r; call (r), f, (a, b);",
        "isspacep.shared %p1, %r1;",
    ],
)
def test_good(body):
    assert messages(body) == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("add.u32 %f1, %r2, %r3;", "'%f1' is .f32, and add.u32 wants .u32 there"),
        ("add.u32 %r1, %rd2, %r3;", "'%rd2' is .b64, and add.u32 wants .u32 there"),
        ("mul.wide.u32 %r1, %r2, %r3;", "'%r1' is .b32, and mul.wide.u32 wants .u64 there"),
        ("add.f32 %f1, %f2, 1;", "1 is an integer, and add.f32 wants .f32 there"),
        ("add.u32 %r1, %r2, 1.0;", "1.0 is a float, and add.u32 wants .u32 there"),
        ("ld.global.f32 %fd1, [%rd1];", "'%fd1' is .f64, and ld.global.f32 wants .f32 there"),
        ("ld.global.u32 %h1, [%rd1];", "'%h1' is .b16, and ld.global.u32 wants .u32 there"),
        ("ld.global.u32 %r1, [%f1];", "'%f1' is .f32, and an address is an integer or bits"),
        ("ld.global.u32 %r1, [%r2];", "'%r2' has 32 bits, and a global address has 64"),
        ("ld.global.v2.u32 {%r1, 5}, [%rd1];", "5 cannot be written to; put a register or '_' there"),
        ("add.f16 %h1, %h2, 1.0;", "1.0 is a float, and add.f16 wants .f16 there"),
        ("add.f16x2 %r1, %r2, 7;", "7 is an integer, and add.f16x2 wants .f16x2 there"),
        ("mov.b64 %rd1, 0f3F800000;", "0f3F800000 is a float, and mov.b64 wants .b64 there"),
        ("ld.shared.u32 %r1, [gv];", "'gv' lies in .global, and ld.shared.u32 accesses .shared"),
        ("ld.global.u32 %r1, [f];", "'f' is a function, not an address"),
        ("mov.u32 %x1, 1;", "'%x1' is not declared in this block or around it"),
        ("mov.u32 %r99, 1;", "'%r99' is not declared in this block or around it"),
        ("mov.u32 %r01, 1;", "'%r01' is not declared in this block or around it"),
        ("mov.u64 %rd1, %r1+8;", "'%r1' is not a variable, and only a variable's address takes an offset"),
        ("add.u32 %r1, gv, 1;", "'gv' is a variable, not a register"),
        ("add.u64 %rd1, p, 1;", "'p' is a parameter, not a register; load it with ld.param"),
        (
            "add.u32 %r1, %tid.x, 1;",
            "%tid.x is a special register, which only mov can read; move it to a register first",
        ),
        ("mov.u64 %rd1, %tid.x;", "%tid.x is .u32, and mov.u64 wants .u64"),
        ("mov.u32 %r1, %tid;", "%tid has components; name one, as in %tid.x"),
        ("add.u32 _, %r1, %r2;", "add cannot throw a value away with '_'"),
        ("@%r1 mov.u32 %r2, 1;", "'%r1' is .b32, and mov.u32 wants .pred there"),
        ("bra nowhere;", "'nowhere' is not a label that can be reached from here"),
        ("{ inner: mov.u32 %r1, 1; } bra inner;", "'inner' is not a label that can be reached from here"),
        ("L: .branchtargets gone;", "'gone' is not a label of this function"),
        (".reg .u32 x; .reg .u32 x;", "'x' is declared twice in this block"),
        (".reg .u32 %r5;", "'%r5' is declared twice in this block"),
        ("L: mov.u32 %r1, 1; L: ret;", "'L' is declared twice in this block"),
        ("call g;", "'g' is neither a function of this module nor a register; declare it"),
        (".param .b64 a; .param .b32 r; call (r), f, (a);", "'f' has 2 arguments, and this call gives 1"),
        (".param .b64 a; .param .b32 b; call f, (a, b);", "'f' has 1 results, and this call gives 0"),
        (
            ".param .b64 a; .param .b32 b; call (8192), f, (a, b);",
            "8192 cannot take a result: a register or a parameter can",
        ),
        (
            ".param .b64 a; .param .b32 b; call (1.5), f, (a, b);",
            "1.5 cannot take a result: a register or a parameter can",
        ),
        (
            ".param .b64 a; .param .b64 b; .param .b32 r; call (r), f, (a, b);",
            "'b' has 8 bytes, and 'b' of the callee 4",
        ),
        (".reg .v4 .f32 %v; add.f32 %f1, %v, %f2;", "'%v' is a vector register; name one component, as in %v.x"),
        ("vote.sync.ballot.b32 %r1, %r2, -1;", "'%r2' is .b32, and vote.sync.ballot.b32 wants .pred there"),
    ],
)
def test_bad(body, message):
    assert messages(body) == [message]


@pytest.mark.parametrize(
    ("body", "version", "target", "message"),
    [
        (
            "wgmma.fence.sync.aligned;",
            "8.0",
            "sm_90",
            "wgmma.fence.sync.aligned needs sm_90a, and the module's target is sm_90",
        ),
        (
            "wgmma.fence.sync.aligned;",
            "9.0",
            "sm_100a",
            "wgmma.fence.sync.aligned needs sm_90a, and the module's target is sm_100a",
        ),
        ("elect.sync %r1|%p1, -1;", "7.8", "sm_90", "elect.sync needs .version 8.0, and the module says 7.8"),
        (
            "tcgen05.fence::before_thread_sync;",
            "8.6",
            "sm_100",
            "tcgen05.fence::before_thread_sync needs sm_100f or sm_101f or sm_110f, and the module's target is sm_100",
        ),
        (
            "redux.sync.add.s32 %r1, %r2, -1;",
            "7.0",
            "sm_75",
            "redux.sync.add.s32 needs sm_80 or later, and the module's target is sm_75",
        ),
        (
            "ld.global.L2::cache_hint.b32 %r1, [%rd1], %rd2;",
            "7.4",
            "sm_75",
            "ld.global.L2::cache_hint.b32 needs sm_80 or later, and the module's target is sm_75",
        ),
        (
            "setmaxnreg.inc.sync.aligned.u32 64;",
            "8.0",
            "sm_90",
            "setmaxnreg.inc.sync.aligned.u32 needs sm_90a or later, and the module's target is sm_90",
        ),
    ],
)
def test_availability(body, version, target, message):
    assert messages(body, version=version, target=target) == [message]


def test_the_error_has_its_place_and_line():
    with pytest.raises(ptx.PtxError) as caught:
        validate(ptx.parse(kernel_text("  add.u32 %f1, %r2, %r3; // wrong")))
    error = caught.value
    assert (error.line, error.column, error.text) == (7, 3, "  add.u32 %f1, %r2, %r3; // wrong")
    assert str(error).endswith("\n      add.u32 %f1, %r2, %r3; // wrong\n      ^")


def test_all_problems_in_order():
    assert messages("mov.u32 %a, 1;\n{ mov.u32 %b, 1; }\nfrob;")[:2] == [
        "'%a' is not declared in this block or around it",
        "'%b' is not declared in this block or around it",
    ]


def test_prefixes_that_end_with_digits():
    assert messages(".reg .b32 %a1<12>; mov.u32 %a10, 1; mov.u32 %a111, 1;") == []
    assert messages(".reg .b32 %a1<12>; mov.u32 %a112, 1;") == ["'%a112' is not declared in this block or around it"]


TEXTURED = kernel_text(
    "ret;",
    before=".entry t(.param .u64 o) { .reg .f32 %f<5>; .reg .b64 %rd<3>; "
    "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd1, {%f1, %f2}]; suld.b.1d.b32.trap {%f1}, [%rd1, {%f2}]; ret; }",
)


def test_textures_are_read_and_refused_where_they_run():
    module = ptx.parse(TEXTURED)
    assert ptx.parse(module.emit()) == module
    device = ptx.EmulatedDevice("sm_100a")
    assert device.launch(module.kernels["k"], 1, 32, [0]).findings == []
    with pytest.raises(ptx.PtxError, match="tex: textures and surfaces are not supported"):
        device.launch(module.kernels["t"], 1, 32, [0])


def test_every_meaning_runs_or_says_why_not():
    from kernbench.ptx.emulator.instructions import _REFUSED, MEANINGS
    from kernbench.ptx.isa import FORMS

    missing = {form.meaning for forms in FORMS.values() for form in forms} - set(MEANINGS)
    assert missing == set(_REFUSED)
    text = kernel_text("multimem.red.add.u32 [%rd1], %r1;")
    with pytest.raises(ptx.PtxError, match=r"cannot run multimem\.red\.add\.u32: it works on the memory of several"):
        ptx.EmulatedDevice("sm_100a").launch(ptx.parse(text).kernels["k"], 1, 32, [0])
