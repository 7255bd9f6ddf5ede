"""Reading PTX: what real texts contain, exact errors, absurd sizes."""

import pytest
from tests.ptx.corpus import MIXED, kernel_text
from tests.work import work

from kernbench import ptx
from kernbench.ptx.text.module import (
    Address,
    Directive,
    Float,
    Generic,
    Guard,
    Instruction,
    Integer,
    Label,
    Masked,
    Name,
    Not,
    Offset,
    Pair,
    Vector,
)


def statement(text: str) -> object:
    """The one statement of a body."""
    return ptx.parse(f".version 8.0\n.target sm_90\n.entry k() {{\n{text}\n}}").kernels["k"].function.body.statements[0]


def operand(text: str, opcode: str = "mov.b32 %r1") -> object:
    return statement(f"{opcode}, {text};").operands[1]


def number(value: int) -> Integer:
    return Integer(value, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%r2", Name("%r2")),
        ("%tid.x", Name("%tid.x")),
        ("_", Name("_")),
        ("-1", number(-1)),
        ("0x7fffffffU", number(0x7FFFFFFF)),
        ("0b101", number(5)),
        ("0777", number(0o777)),
        ("-0x10", number(-16)),
        ("WARP_SZ", number(32)),
        ("(1 + 2) * 3 - -4", number(13)),
        ("1 << 4 | 3", number(19)),
        ("5 > 3 ? 7 : 8", number(7)),
        ("~0", number(-1)),
        ("!0", number(1)),
        ("(.u64) -1", number(2**64 - 1)),
        ("-7 / 2", number(-3)),
        ("-7 % 2", number(-1)),
        ("0f3F800000", Float(0x3F800000, 32, "")),
        ("0dBFF0000000000000", Float(0xBFF0000000000000, 64, "")),
        ("1.0", Float(0x3FF0000000000000, 64, "")),
        ("-.5", Float(0xBFE0000000000000, 64, "")),
        ("-0f3F800000", Float(0xBF800000, 32, "")),
        ("1e-3", Float(0x3F50624DD2F1A9FC, 64, "")),
        ("1.0+2.0", Float(0x4008000000000000, 64, "")),
        ("table+8", Offset(Name("table"), 8)),
        ("table-8", Offset(Name("table"), -8)),
        ("table - 0xFFFFFFFFFFFFFFFF", Offset(Name("table"), 1)),
        ("table[3]", Offset(Name("table"), 3)),
        ("!%p1", Not(Name("%p1"))),
        ("{%r1, _, 3}", Vector((Name("%r1"), Name("_"), number(3)))),
        ("%r1|%p1", Pair(Name("%r1"), Name("%p1"))),
        ("_|%p1", Pair(Name("_"), Name("%p1"))),
        ("[%rd1]", Address(Name("%rd1"))),
        ("[%rd1+16]", Address(Name("%rd1"), 16)),
        ("[%rd1 + -16]", Address(Name("%rd1"), -16)),
        ("[table+4+4]", Address(Name("table"), 8)),
        ("[4096]", Address(number(4096))),
        ("[%rd1, {%r1, %r2}]", Address(Name("%rd1"), 0, (Vector((Name("%r1"), Name("%r2"))),))),
    ],
)
def test_operand(text, expected):
    assert operand(text) == expected


def test_array_elements_are_scaled_by_their_size():
    module = ptx.parse(kernel_text("ld.global.u32 %r1, words[3];", before=".global .u32 words[8];"))
    load = module.kernels["k"].function.body.statements[-2]
    assert load.operands[1] == Address(Name("words"), 12)


def test_instruction_with_guard_and_spread_modifiers():
    found = statement("@!%p1 ld .global.v2 .f32 {%f1, %f2}, [%rd1];")
    assert found == Instruction(
        "ld",
        ("global", "v2", "f32"),
        (Vector((Name("%f1"), Name("%f2"))), Address(Name("%rd1"))),
        Guard("%p1", True),
    )
    assert (found.line, found.column) == (4, 1)


def test_whole_module():
    module = ptx.parse(MIXED)
    assert (module.version, module.target, module.address_size) == ((8, 7), ("sm_90a", "debug"), 64)
    assert list(module.kernels) == ["everything"]
    assert list(module.functions) == ["vprintf", "changed", "other"]
    assert module.functions["other"].body is module.functions["changed"].body
    kernel = module.kernels["everything"]
    assert [(p.name, p.type, p.size, p.alignment, p.offset) for p in kernel.params] == [
        ("everything_param_0", "u64", 8, 8, 0),
        ("everything_param_1", "b8", 40, 8, 8),
        ("everything_param_2", "u32", 4, 4, 48),
    ]
    assert (kernel.maxntid, kernel.reqntid, kernel.cluster) == ((256, 1, 1), None, (2, 1, 1))
    assert module.variables["pointers"].initial == (Generic(Name("counter")), Generic(Name("counter"), 8), number(0))
    assert module.variables["bytes"].initial[1] == Masked(number(0xFF00), Name("counter"))
    assert module.variables["table"].dims == (2, 2)
    assert module.variables["dynamic"].size is None
    section = next(item for item in module.items if isinstance(item, Directive) and item.name == "section")
    assert section.text.split("\n")[:4] == [".debug_str", "{", "$L__info_string0:", ".b8 95,90,78"]


def test_labels_that_list_targets():
    labels = [s for s in ptx.parse(MIXED).kernels["everything"].function.body.statements if isinstance(s, Label)]
    assert [(label.name, label.targets) for label in labels if label.directive] == [
        ("$L_table", ("$L__BB0_2", "$L__BB0_3"))
    ]


def test_strings_may_hold_quotes():
    text = kernel_text(r'.pragma "a \"quoted\" word";')
    assert Directive("pragma", r'"a \"quoted\" word";') in ptx.parse(text).kernels["k"].function.body.statements


def test_bytes_and_a_closing_zero():
    text = kernel_text("mov.u32 %r1, 1;")
    assert ptx.parse(text.encode() + b"\0") == ptx.parse(text) == ptx.parse(text.replace("\n", "\r\n"))


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "expected '.version major.minor' at the beginning, found the end of the text"),
        (".version 8", 1, 10, "expected a version such as 8.0, found '8'"),
        (".version 8.0\n", 2, 1, "the module has no '.target'; add one such as '.target sm_90a'"),
        (".version 8.0\n.target sm_90\nfoo", 3, 1, "expected a function, a variable or a directive, found 'foo'"),
        (kernel_text("add.u32 %r1, %r2 %r3;"), 7, 18, "expected ',' or ';' after an operand, found '%r3'"),
        (kernel_text("add.u32 %r1, ;"), 7, 14, "expected an operand, found ';'"),
        (kernel_text("ld.b32 %r1, [%rd1;"), 7, 18, "expected ']' to close the address, found ';'"),
        (kernel_text("mov.b32 %r1, {%r1;"), 7, 18, "expected '}' to close the vector, found ';'"),
        (
            kernel_text("mov.b32 %r1, 0x12345678901234567;"),
            7,
            14,
            "'0x12345678901234567' is not a number, or does not fit 64 bits",
        ),
        (kernel_text("mov.b32 %r1, 0f3F8;"), 7, 14, "'0f3F8' is not a number, or does not fit 64 bits"),
        (kernel_text("mov.b32 %r1, 1/0;"), 7, 15, "division by zero in a constant expression"),
        (kernel_text("mov.b32 %r1, 1 + 1.0;"), 7, 14, "only integers can be computed with, and 1.0 is a float"),
        (kernel_text("%r1 = 3;"), 7, 1, "expected an instruction, a label, a directive or '}', found '%r1'"),
        (kernel_text("`;"), 7, 1, "unexpected character '`'"),
        (kernel_text('.pragma "open;'), 7, 9, "this string has no end; close it with '\"' on the same line"),
        (kernel_text("/* no end"), 7, 1, "this comment has no end; close it with '*/'"),
        (kernel_text("{ "), 5, 34, "this block has no end; close it with '}'"),
        (kernel_text(".reg .b32 %x<0>;"), 7, 14, "a range holds 1 to 1048576 registers, not 0"),
        (kernel_text(".reg .b32 %x<99999999>;"), 7, 14, "a range holds 1 to 1048576 registers, not 99999999"),
        (kernel_text(".reg .b33 %x;"), 7, 6, "expected a type such as .b32, found '.b33'"),
        (kernel_text(".reg .bf16 %x;"), 7, 6, ".bf16 is a type of instructions only; declare bits, such as .b32"),
        (kernel_text(".shared .b8 a[0x10000000001];"), 7, 15, "an array has 0 to 2^40 elements, not 1099511627777"),
        (kernel_text(".shared .b64 a[0x8000][0x8000][0x8000];"), 7, 14, "'a' is larger than 2^40 bytes"),
        (kernel_text(".shared .align 3 .b8 a;"), 7, 16, "an alignment is a power of two up to 2^20, not 3"),
        (kernel_text("mov.b32 %r1, " + "(" * 99 + "1" + ")" * 99 + ";"), 7, 64, "this is nested deeper than 50"),
        (kernel_text("{" * 300 + "}" * 300), 7, 200, "blocks are nested deeper than 200"),
    ],
)
def test_error(text, line, column, message):
    with pytest.raises(ptx.PtxSyntaxError) as caught:
        ptx.parse(text)
    error = caught.value
    assert (error.line, error.column, error.message) == (line, column, message)
    assert error.text == (text.split("\n")[line - 1] if text else "")


def test_error_shows_the_line_with_a_caret():
    with pytest.raises(ptx.PtxSyntaxError) as caught:
        ptx.parse(kernel_text("\tadd.u32 %r1, %r2 %r3;"))
    assert str(caught.value) == (
        "line 7, column 19: expected ',' or ';' after an operand, found '%r3'\n"
        "     add.u32 %r1, %r2 %r3;\n"
        "                      ^"
    )


def test_error_in_a_very_long_line_is_cut_around_its_place():
    with pytest.raises(ptx.PtxSyntaxError) as caught:
        ptx.parse(kernel_text(" " * 100_000 + "add.u32 %r1 %r2;"))
    assert max(map(len, str(caught.value).split("\n"))) < 200


@pytest.mark.parametrize(
    "garbage", ["/*" * 200_000, '"' * 99_999, "(" * 100_000, "{" * 100_000, " " * 300_000 + "`", "-" * 50_000]
)
def test_much_garbage_is_refused(garbage):
    with pytest.raises(ptx.PtxSyntaxError):
        ptx.parse(kernel_text("mov.b32 %r1, " + garbage))


@pytest.mark.parametrize("garbage", ["/*", '"', "(", "{", " ", "-", "1+", "a.", "@"])
def test_work_on_garbage_is_linear(garbage):
    def parse(count):
        return work(lambda: ptx.parse(kernel_text("mov.b32 %r1, " + garbage * count + "`")), ptx.PtxSyntaxError)

    assert parse(8_000) < 10 * parse(1_000)


def test_work_is_linear():
    line = "fma.rn.f32 %f1, %f2, %f3, 0f3F800000;\nld.global.v2.b32 {%r1, %r2}, [%rd1+16];\n@%p1 bra $L;\n"

    def parse(count):
        return work(lambda: ptx.parse(kernel_text("$L:\n" + line * count)))

    assert parse(1_600) < 8.5 * parse(200)


def test_the_count_shows_what_is_not_linear():
    def pairs(count):
        return work(lambda: [max(a, b) for a in range(count) for b in range(count)])

    assert pairs(80) > 50 * pairs(10)
