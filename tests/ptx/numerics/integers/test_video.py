"""Video instructions against one lane at a time in plain Python."""

import numpy as np
import pytest
from tests import sampled

from kernbench import ptx
from kernbench.ptx.conformance import expand, inputs_for, run_case, source

MIXED = "<u32.u32.u32|s32.s32.s32|u32.s32.u32|s32.u32.s32>"
CASES = list(
    expand(
        (
            f"<vadd|vsub|vabsdiff|vmin|vmax>.{MIXED}<|.sat> : u32 u32 -> u32",
            f"<vsub|vabsdiff>.{MIXED}<|.sat>.<add|min|max> : u32 u32 u32 -> u32",
            f"<vadd|vmin>.{MIXED}<|.sat> $d.<b2|h1>, $a.h1, $b.b3, $c : u32 u32 u32 -> u32",
            "<vshl|vshr>.<u32|s32>.<u32|s32>.u32<|.sat>.<clamp|wrap> $d, $a.h0, $b.b0 : u32 u32 -> u32",
            "<vshl|vshr>.<u32|s32>.<u32|s32>.u32<|.sat>.clamp.<min|max> $d, $a, $b.b0, $c : u32 u32 u32 -> u32",
            "<vshl|vshr>.<u32|s32>.<u32|s32>.u32.sat.wrap $d.<b1|h1>, $a, $b, $c : u32 u32 u32 -> u32",
            "vset.<u32|s32>.<u32|s32>.<eq|lt|ge> $d.h0, $a.b1, $b, $c : u32 u32 u32 -> u32",
            f"vmax.{MIXED}.<min|max> : u32 u32 u32 -> u32",
            "vset.<u32|s32>.<u32|s32>.ge.<min|max> : u32 u32 u32 -> u32",
            f"vmad.{MIXED}<.po|.sat|.sat.shr7|.shr15> : u32 u32 u32 -> u32",
            f"<vadd|vsub|vavrg|vabsdiff|vmin|vmax>4.{MIXED}<|.sat|.add> : u32 u32 u32 -> u32",
            f"<vadd|vavrg|vabsdiff>2.{MIXED}<|.sat|.add> $d.h0, $a.h30, $b.h12, $c : u32 u32 u32 -> u32",
            "vset<2|4>.<u32|s32>.<u32|s32>.<ne|lt><|.add> : u32 u32 u32 -> u32",
        )
    )
)


def part(value: int, selector: str, signed: bool) -> int:
    width = {"": 32, "b": 8, "h": 16}[selector[:1]]
    field = value >> width * int(selector[1:] or 0) & (1 << width) - 1
    return field - (1 << width) if signed and field >> width - 1 else field


def clamped(value: int, width: int, signed: bool) -> int:
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    return max(low, min(high, value))


def limited(opcode: str, value: int, width: int, signed: bool) -> int:
    """`.sat` of single values: what ptxas writes, which is not what the ISA says."""
    if opcode in ("vshl", "vshr"):
        kept = value % 2**34 - (2**34 if value >> 33 & 1 else 0)
        return clamped(kept if opcode == "vshl" else value, 32, signed)
    most = (1 << (width - 1 if signed else width)) - 1
    if width < 32:
        return value if 0 <= value <= most else most
    return clamped(value, 32, True) if signed else max(value, 0)


def plain(opcode: str, words: list[str], x: int, y: int) -> int:
    compared = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
    chosen = next((w for w in words if w in compared), None)
    if chosen is not None:
        return int(compared[chosen])
    if opcode in ("vshl", "vshr"):
        amount = min(y, 32) if "clamp" in words else y % 32
        return x << amount if opcode == "vshl" else x >> amount
    if opcode == "vavrg":
        return x + y + 1 >> 1 if x + y >= 0 else x + y >> 1
    return {"vadd": x + y, "vsub": x - y, "vabsdiff": abs(x - y), "vmin": min(x, y), "vmax": max(x, y)}[opcode]


def signs(opcode: str, words: list[str]) -> tuple[bool, bool, bool]:
    types = [w == "s32" for w in words if w in ("u32", "s32")]
    return (False, *types) if opcode.startswith("vset") else tuple(types)


def expected(text: str, a: int, b: int, c: int) -> int:
    head, _, tail = text.rstrip(";").partition(" ")
    opcode, *words = head.split(".")
    d_part, a_part, b_part = ([name.strip().partition(".")[2] for name in tail.split(",")] + [""])[:3]
    dsign, asign, bsign = signs(opcode, words)
    if opcode[-1] in "24":
        return packed(opcode, words, (a, b, c), (d_part, a_part, b_part), (dsign, asign, bsign))
    x, y = part(a, a_part, asign), part(b, b_part, bsign)
    if opcode == "vmad":
        signed = asign or bsign
        shift = next((int(w[3:]) for w in words if w.startswith("shr")), 0)
        value = part(x % 2**32, "", True) * part(y % 2**32, "", True) + part(c, "", True) + ("po" in words)
        value = (value % 2**64 if shift and "sat" in words and not signed else value) >> shift
        return (clamped(value, 32, signed) if "sat" in words else value) % 2**32
    value = plain(opcode, words, x, y)
    width = {"": 32, "b": 8, "h": 16}[d_part[:1]]
    value = limited(opcode, value, width, dsign) if "sat" in words else value
    second = next((w for w in words if w in ("add", "min", "max")), "")
    if second:
        sign = asign if opcode == "vset" else dsign
        if opcode in ("vadd", "vsub") or ("sat" in words and opcode in ("vshl", "vshr")):
            value = part(value % 2**32, "", True)
        value, other = value if sign else value % 2**64, part(c, "", sign)
        value = {"add": value + other, "min": min(value, other), "max": max(value, other)}[second]
    elif d_part:
        mask = (1 << width) - 1 << width * int(d_part[1:])
        value = c & ~mask | (value if d_part == "h1" else value << width * int(d_part[1:])) & mask
    return value % 2**32


def packed(opcode, words, values, parts, signed):
    lanes = int(opcode[-1])
    width = 32 // lanes
    both = values[0] | values[1] << 32
    order = "".join(str(n) for n in reversed(range(lanes)))
    first = parts[1][1:] or order
    other = parts[2][1:] or "".join(str(int(n) + lanes) for n in order)
    result = total = values[2]
    for lane in (int(n) for n in parts[0][1:] or order):
        fields = []
        for digits, sign in ((first, signed[1]), (other, signed[2])):
            field = both >> width * int(digits[lanes - 1 - lane]) & (1 << width) - 1
            fields.append(field - (1 << width) if sign and field >> width - 1 else field)
        value = plain(opcode[:-1], words, *fields)
        value = clamped(value, width, signed[0]) if "sat" in words else value
        mask = (1 << width) - 1 << width * lane
        result = result & ~mask | value << width * lane & mask
        total += value
    return (total if "add" in words else result) % 2**32


# with --full every third case, here every ninth
@pytest.mark.parametrize("start", range(sampled.examples(1, 3)))
def test_cases_in_plain_python(start):
    device = ptx.EmulatedDevice("sm_90a")
    for case in CASES[start::9]:
        inputs = inputs_for(case, 96)
        given = run_case(device, ptx.parse(source(case)).kernels["apply"], case, inputs, checks=False)[0]
        rows = [row[0].tolist() for row in inputs]
        rows += [[0] * len(rows[0])] * (3 - len(rows))
        wanted = [expected(case.text, *values) for values in zip(*rows, strict=True)]
        assert given.tolist() == wanted, case.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vadd.u32.u32.u32 %r1.b4, %r2, %r3, %r4;", ".b4 is no part of '%r1' that vadd can name there"),
        ("vadd.u32.u32.u32 %r1, %r2.b10, %r3;", ".b10 is no part of '%r2' that vadd can name there"),
        ("vadd4.u32.u32.u32 %r1.b02, %r2, %r3, %r4;", ".b02 is no part of '%r1' that vadd4 can name there"),
        ("vadd2.u32.u32.u32 %r1, %r2.h40, %r3, %r4;", ".h40 is no part of '%r2' that vadd2 can name there"),
    ],
)
def test_parts_that_are_none(text, message):
    module = f".version 8.0\n.target sm_90\n.address_size 64\n.entry k() {{ .reg .b32 %r<9>; {text} ret; }}"
    with pytest.raises(ptx.PtxError, match=message):
        ptx.EmulatedDevice("sm_90").launch(ptx.parse(module).kernels["k"], 1, 32)


# words that the instructions of ptxas 13.0 for sm_90 compute, and the ISA's text does not
@pytest.mark.parametrize(
    ("text", "values", "word"),
    [
        ("vadd.u32.u32.u32.sat %r4, %r1, %r2;", (0x7F, 0xFFFFFFFF, 0), 0x7E),
        ("vabsdiff.u32.u32.s32.sat %r4, %r1, %r2;", (0xFFFFFFFE, 0xE0B4A045, 0), 0x1F4B5FB9),
        ("vsub.s32.s32.s32.sat %r4.b1, %r1, %r2, %r3;", (1, 2, 0), 0x7F00),
        ("vshl.u32.u32.u32.sat.clamp %r4.b0, %r1, %r2, %r3;", (0x7155CE4B, 0x20, 0x7E033E54), 0x7E033E00),
        ("vshr.u32.u32.u32.sat.clamp %r4.b0, %r1, %r2, %r3;", (0x241170A2, 0, 0xFFFFFFFF), 0xFFFFFFA2),
        ("vshl.u32.u32.u32.sat.clamp.max %r4, %r1, %r2, %r3;", (0x80000001, 0x1F, 0xEF4C826C), 0x80000000),
        ("vabsdiff.u32.u32.s32.sat.max %r4, %r1, %r2, %r3;", (0xFFFFFFFE, 0xE0B4A045, 0xFFFFFFFF), 0x1F4B5FB9),
    ],
)
def test_words_of_the_instructions_that_ptxas_writes(text, values, word):
    moves = " ".join(f"mov.b32 %r{n}, {value};" for n, value in enumerate(values, 1))
    module = ".version 8.0\n.target sm_90\n.address_size 64\n.entry k(.param .u64 p) { .reg .b32 %r<5>; .reg .b64 %q;"
    module += f" ld.param.b64 %q, [p]; {moves} {text} st.global.b32 [%q], %r4; ret; }}"
    device = ptx.EmulatedDevice("sm_90")
    out = device.array(np.zeros(1, np.uint32))
    device.launch(ptx.parse(module).kernels["k"], 1, 1, [out])
    assert hex(out.numpy()[0]) == hex(word)


def test_inputs_reach_every_sign():
    assert len(CASES) > 150
    assert {bool(v >> 31) for v in inputs_for(CASES[0], 96)[0][0].astype(np.int64).tolist()} == {True, False}
