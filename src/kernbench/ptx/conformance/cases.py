"""The table of instructions to compare: one line for each family, with alternatives in angle brackets.

A line is `instruction : input types -> output type`. Operands are the registers $d, $a, $b, $c in order, unless the
line spells them out. `f16x2*4` is a vector of four registers. `p`, `q`, `t` and `u` are scratch registers: two
predicates, one of 32 bits and one of 64.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from kernbench.common.errors import MisuseError

_ALTERNATIVES = re.compile(r"<([^<>]*)>")
_OPERANDS = "abcefg"


@dataclass(frozen=True)
class Value:
    """An operand's type, and its number of registers."""

    type: str
    registers: int = 1


@dataclass(frozen=True)
class Case:
    """One instruction. `text` has placeholders for registers; with `exact` results must agree bit for bit."""

    text: str
    inputs: tuple[Value, ...]
    output: Value
    exact: bool = True

    @property
    def name(self) -> str:
        """The instruction; operands are omitted if they are the default ones."""
        usual = _usual_operands(self.inputs)
        return self.text.removesuffix(f" {usual};").rstrip(";")


def expand(lines: Iterable[str], exact: bool = True) -> Iterator[Case]:
    """The cases of lines of the table, one for each combination of alternatives."""
    for line in lines:
        head, _, signature = line.rpartition(" : ")
        parts = _ALTERNATIVES.split(f"{head} : {signature}")
        for chosen in product(*(part.split("|") for part in parts[1::2])):
            yield _case("".join(a + b for a, b in zip(parts[::2], (*chosen, ""), strict=True)), exact)


def _case(line: str, exact: bool) -> Case:
    head, _, signature = line.rpartition(" : ")
    taken, arrow, given = signature.partition(" -> ")
    if not head or not arrow:
        raise MisuseError(f"{line!r} is no case: write 'instruction : input types -> output type'")
    inputs = tuple(map(_value, taken.split()))
    text = head if "$d" in head else f"{head} {_usual_operands(inputs)}"
    return Case(text.rstrip(";") + ";", inputs, _value(given), exact)


def _value(text: str) -> Value:
    name, _, registers = text.strip().partition("*")
    return Value(name, int(registers or 1))


def _usual_operands(inputs: tuple[Value, ...]) -> str:
    return ", ".join(["$d", *(f"${letter}" for letter, _ in zip(_OPERANDS, inputs, strict=False))])


_ORDERED = "<eq|ne|lt|le|gt|ge>"
_UNORDERED = "<equ|neu|ltu|leu|gtu|geu|num|nan>"
_SELECT = "$a, $b; selp.u32 $d, 1, 0, p"
_ROUNDINGS = "<rn|rz|rm|rp>"

_INTEGER = (
    "<add|sub>.<u16|s16> : u16 u16 -> u16",
    "<add|sub>.<u32|s32> : u32 u32 -> u32",
    "<add|sub>.<u64|s64> : u64 u64 -> u64",
    "<add|sub>.sat.s32 : s32 s32 -> s32",
    "add.cc.u32 t, $a, $b; addc.u32 $d, $b, $c : u32 u32 u32 -> u32",
    "sub.cc.u32 t, $a, $b; subc.u32 $d, $b, $c : u32 u32 u32 -> u32",
    "mad.lo.cc.u32 t, $a, $b, $c; addc.u32 $d, 0, 0 : u32 u32 u32 -> u32",
    "mul.<lo|hi>.<u32|s32> : u32 u32 -> u32",
    "mul.<lo|hi>.<u64|s64> : u64 u64 -> u64",
    "mul.<lo|hi>.<u16|s16> : u16 u16 -> u16",
    "mul.wide.<u16|s16> : u16 u16 -> u32",
    "mul.wide.<u32|s32> : u32 u32 -> u64",
    "mul24.<lo|hi>.<u32|s32> : u32 u32 -> u32",
    "mad24.<lo|hi>.<u32|s32> : u32 u32 u32 -> u32",
    "mad.<lo|hi>.<u32|s32> : u32 u32 u32 -> u32",
    "mad.wide.<u32|s32> : u32 u32 u64 -> u64",
    "mad.hi.sat.s32 : s32 s32 s32 -> s32",
    "<div|rem|min|max>.<u16|s16> : u16 u16 -> u16",
    "<div|rem|min|max>.<u32|s32> : u32 u32 -> u32",
    "<div|rem|min|max>.<u64|s64> : u64 u64 -> u64",
    "<min|max>.<u16x2|s16x2> : u16x2 u16x2 -> u16x2",
    "<min|max>.relu.s32 : s32 s32 -> s32",
    "add.<u16x2|s16x2> : u16x2 u16x2 -> u16x2",
    "<abs|neg>.s16 : s16 -> s16",
    "<abs|neg>.s32 : s32 -> s32",
    "<abs|neg>.s64 : s64 -> s64",
    "sad.<u32|s32> : u32 u32 u32 -> u32",
    "dp4a.<u32|s32>.<u32|s32> : u32 u32 u32 -> u32",
    "dp2a.<lo|hi>.<u32|s32>.<u32|s32> : u32 u32 u32 -> u32",
)

_MIXED = "<u32.u32.u32|s32.s32.s32|u32.s32.u32|s32.u32.s32>"
_VIDEO = (
    f"<vadd|vsub|vabsdiff|vmin|vmax>.{_MIXED}<|.sat> : u32 u32 -> u32",
    f"<vsub|vabsdiff>.{_MIXED}<|.sat>.<add|min|max> : u32 u32 u32 -> u32",
    f"<vadd|vmin>.{_MIXED}<|.sat> $d.<b2|h1>, $a.h1, $b.b3, $c : u32 u32 u32 -> u32",
    "<vmin|vmax>.<u32|s32>.<u32|s32>.<u32|s32>.<min|max> : u32 u32 u32 -> u32",
    "<vshl|vshr>.<u32|s32>.<u32|s32>.u32<|.sat>.<clamp|wrap> $d, $a.h0, $b.b0 : u32 u32 -> u32",
    "<vshl|vshr>.<u32|s32>.<u32|s32>.u32<|.sat>.clamp.<min|max> $d, $a, $b.b0, $c : u32 u32 u32 -> u32",
    "<vshl|vshr>.<u32|s32>.<u32|s32>.u32.sat.wrap $d.<b1|h1>, $a, $b, $c : u32 u32 u32 -> u32",
    "vset.<u32|s32>.<u32|s32>.<eq|lt|ge> $d.h0, $a.b1, $b, $c : u32 u32 u32 -> u32",
    "vset.<u32|s32>.<u32|s32>.ge.<min|max> : u32 u32 u32 -> u32",
    f"vmad.{_MIXED}<.po|.sat|.sat.shr7|.shr15> : u32 u32 u32 -> u32",
    f"<vadd|vsub|vavrg|vabsdiff|vmin|vmax>4.{_MIXED}<|.sat|.add> : u32 u32 u32 -> u32",
    f"<vadd|vavrg|vabsdiff>2.{_MIXED}<|.sat|.add> $d.h0, $a.h30, $b.h12, $c : u32 u32 u32 -> u32",
    "vset<2|4>.<u32|s32>.<u32|s32>.<ne|lt><|.add> : u32 u32 u32 -> u32",
)

_BITS = (
    "<and|or|xor>.b32 : b32 b32 -> b32",
    "<not|cnot>.b32 : b32 -> b32",
    "<not|cnot>.b64 : b64 -> b64",
    "lop3.b32 $d, $a, $b, $c, <0x96|0x1b|0xe8|0x80> : b32 b32 b32 -> b32",
    "shl.b16 : b16 u32 -> b16",
    "shl.b32 : b32 u32 -> b32",
    "shl.b64 : b64 u32 -> b64",
    "shr.<b16|s16> : b16 u32 -> b16",
    "shr.<b32|s32> : b32 u32 -> b32",
    "shr.<b64|s64> : b64 u32 -> b64",
    "shf.<l|r>.<clamp|wrap>.b32 : b32 b32 u32 -> b32",
    "bfe.<u32|s32> : b32 u32 u32 -> b32",
    "bfe.<u64|s64> : b64 u32 u32 -> b64",
    "bfi.b32 : b32 b32 u32 u32 -> b32",
    "bfi.b64 : b64 b64 u32 u32 -> b64",
    "bfind<|.shiftamt>.<u32|s32> : b32 -> u32",
    "bfind<|.shiftamt>.<u64|s64> : b64 -> u32",
    "<brev|popc|clz>.b32 : b32 -> b32",
    "<popc|clz>.b64 : b64 -> u32",
    "brev.b64 : b64 -> b64",
    "fns.b32 : b32 b32 s32 -> b32",
    "bmsk.<clamp|wrap>.b32 : b32 b32 -> b32",
    "szext.<clamp|wrap>.<u32|s32> : b32 u32 -> b32",
    "prmt.b32<|.f4e|.b4e|.rc8|.ecl|.ecr|.rc16> : b32 b32 b32 -> b32",
    "slct.u32.s32 : b32 b32 s32 -> b32",
    "slct<|.ftz>.u32.f32 : b32 b32 f32 -> b32",
    "cvt.pack.sat.<s16|u16>.s32 : s32 s32 -> b32",
    "cvt.pack.sat.<s8|u8>.s32.b32 : s32 s32 b32 -> b32",
)

_FLOAT = (
    f"<add|sub|mul>.{_ROUNDINGS}<|.ftz><|.sat>.f32 : f32 f32 -> f32",
    f"fma.{_ROUNDINGS}<|.ftz><|.sat>.f32 : f32 f32 f32 -> f32",
    f"<add|sub|mul>.{_ROUNDINGS}.f64 : f64 f64 -> f64",
    f"fma.{_ROUNDINGS}.f64 : f64 f64 f64 -> f64",
    f"div.{_ROUNDINGS}<|.ftz>.f32 : f32 f32 -> f32",
    f"<rcp|sqrt>.{_ROUNDINGS}<|.ftz>.f32 : f32 -> f32",
    f"div.{_ROUNDINGS}.f64 : f64 f64 -> f64",
    f"<rcp|sqrt>.{_ROUNDINGS}.f64 : f64 -> f64",
    "<min|max><|.ftz><|.NaN><|.xorsign.abs>.f32 : f32 f32 -> f32",
    "<min|max>.f64 : f64 f64 -> f64",
    "<abs|neg><|.ftz>.f32 : f32 -> f32",
    "<abs|neg>.f64 : f64 -> f64",
    "<abs|neg>.<f16|bf16> : b16 -> b16",
    "<add|sub|mul><|.rn><|.ftz><|.sat>.f16 : f16 f16 -> f16",
    "<add|sub|mul>.rn<|.ftz><|.sat>.f16x2 : f16x2 f16x2 -> f16x2",
    "<add|sub|mul>.rn.bf16 : bf16 bf16 -> bf16",
    "<add|sub|mul>.rn.bf16x2 : bf16x2 bf16x2 -> bf16x2",
    "fma.rn<|.ftz><|.sat|.relu>.f16 : f16 f16 f16 -> f16",
    "fma.rn.f16x2 : f16x2 f16x2 f16x2 -> f16x2",
    "fma.rn<|.relu>.bf16 : bf16 bf16 bf16 -> bf16",
    "fma.rn.bf16x2 : bf16x2 bf16x2 bf16x2 -> bf16x2",
    "fma.rn.oob<|.relu>.f16 : f16 f16 f16 -> f16",
    "fma.rn.oob<|.relu>.bf16 : bf16 bf16 bf16 -> bf16",
    "<min|max><|.ftz><|.NaN><|.xorsign.abs>.f16 : f16 f16 -> f16",
    "<min|max><|.NaN><|.xorsign.abs>.bf16 : bf16 bf16 -> bf16",
    "<min|max><|.NaN>.bf16x2 : bf16x2 bf16x2 -> bf16x2",
    "copysign.f32 : f32 f32 -> f32",
    "copysign.f64 : f64 f64 -> f64",
    "testp.<finite|infinite|number|notanumber|normal|subnormal>.f32 p, $a; selp.u32 $d, 1, 0, p : f32 -> u32",
    "testp.<finite|infinite|number|notanumber|normal|subnormal>.f64 p, $a; selp.u32 $d, 1, 0, p : f64 -> u32",
)

_COMPARE = (
    f"setp.{_ORDERED}.s32 p, {_SELECT} : s32 s32 -> u32",
    f"setp.<eq|ne|lo|ls|hi|hs>.u64 p, {_SELECT} : u64 u64 -> u32",
    f"setp.{_ORDERED}<|.ftz>.f32 p, {_SELECT} : f32 f32 -> u32",
    f"setp.{_UNORDERED}.f32 p, {_SELECT} : f32 f32 -> u32",
    f"setp.{_ORDERED}.f64 p, {_SELECT} : f64 f64 -> u32",
    f"setp.{_UNORDERED}.f16 p, {_SELECT} : f16 f16 -> u32",
    f"setp.{_ORDERED}<|.ftz>.f16 p, {_SELECT} : f16 f16 -> u32",
    f"setp.{_ORDERED}.bf16 p, {_SELECT} : bf16 bf16 -> u32",
    f"set.{_ORDERED}.<f32|u32>.f32 : f32 f32 -> b32",
    "set.<lt|geu|nan>.<f16|u16>.f16 : f16 f16 -> b16",
    "set.<lt|geu|nan>.f16x2.f16x2 : f16x2 f16x2 -> f16x2",
    "set.<lt|geu|nan>.bf16x2.bf16x2 : bf16x2 bf16x2 -> bf16x2",
)

_CONVERT = (
    "cvt.<rni|rzi|rmi|rpi><|.ftz>.<u8|s8|u16|s16>.f32 : f32 -> b16",
    "cvt.<rni|rzi|rmi|rpi><|.ftz>.<u32|s32>.f32 : f32 -> b32",
    "cvt.<rni|rzi|rmi|rpi>.<u64|s64>.f32 : f32 -> b64",
    "cvt.<rni|rzi|rmi|rpi>.<u32|s32>.f64 : f64 -> b32",
    "cvt.<rni|rzi|rmi|rpi>.<u64|s64>.f64 : f64 -> b64",
    "cvt.<rni|rzi>.<u8|s8|u16|s16>.f16 : f16 -> b16",
    "cvt.<rni|rzi>.<u32|s32>.<f16|bf16> : b16 -> b32",
    "cvt.<rni|rzi>.<u64|s64>.f16 : f16 -> b64",
    f"cvt.{_ROUNDINGS}.f32.<u32|s32> : b32 -> f32",
    f"cvt.{_ROUNDINGS}.f32.<u64|s64> : b64 -> f32",
    f"cvt.{_ROUNDINGS}.f64.<u64|s64> : b64 -> f64",
    f"cvt.{_ROUNDINGS}.f16.<u16|s16> : b16 -> f16",
    f"cvt.{_ROUNDINGS}.f16.<u32|s32> : b32 -> f16",
    "cvt.rn.f16.<u64|s64> : b64 -> f16",
    "cvt.rn.bf16.<u32|s32> : b32 -> bf16",
    "cvt.rn.bf16.<u64|s64> : b64 -> bf16",
    "cvt<|.sat>.<u8|s8>.<s32|u32> : b32 -> b16",
    "cvt<|.sat>.<u16|s16>.<s32|u32> : b32 -> b16",
    "cvt<|.sat>.<u32|s32>.<s64|u64> : b64 -> b32",
    "cvt.<u64|s64>.<u16|s16> : b16 -> b64",
    f"cvt.{_ROUNDINGS}<|.ftz><|.sat>.f32.f64 : f64 -> f32",
    f"cvt.{_ROUNDINGS}.f16.f64 : f64 -> f16",
    f"cvt.{_ROUNDINGS}.bf16.f64 : f64 -> bf16",
    "cvt<|.ftz><|.sat>.f64.f32 : f32 -> f64",
    f"cvt.{_ROUNDINGS}<|.ftz><|.sat>.f16.f32 : f32 -> f16",
    "cvt.<rn|rz>.relu.f16.f32 : f32 -> f16",
    f"cvt.{_ROUNDINGS}.bf16.f32 : f32 -> bf16",
    "cvt.<rn|rz>.relu.bf16.f32 : f32 -> bf16",
    "cvt<|.ftz><|.sat>.f32.f16 : f16 -> f32",
    "cvt<|.ftz>.f32.bf16 : bf16 -> f32",
    "cvt.f64.<f16|bf16> : b16 -> f64",
    "cvt.rn.bf16.f16 : f16 -> bf16",
    "cvt.rn.f16.bf16 : bf16 -> f16",
    "cvt.<rni|rzi|rmi|rpi><|.ftz><|.sat>.f32.f32 : f32 -> f32",
    "cvt.<rni|rzi|rmi|rpi>.f64.f64 : f64 -> f64",
    "cvt.<rni|rzi|rmi|rpi>.f16.f16 : f16 -> f16",
    "cvt<|.ftz><|.sat>.f32.f32 : f32 -> f32",
    "cvt.<rn|rz><|.relu>.<f16x2|bf16x2>.f32 : f32 f32 -> b32",
    "cvt.rna<|.satfinite>.tf32.f32 : f32 -> b32",
    "cvt.<rn|rz><|.relu>.tf32.f32 : f32 -> b32",
    "cvt.rn.satfinite<|.relu>.<e4m3x2|e5m2x2>.f32 : f32 f32 -> b16",
    "cvt.rn.satfinite<|.relu>.<e4m3x2|e5m2x2>.f16x2 : f16x2 -> b16",
    "cvt.rn<|.relu>.f16x2.<e4m3x2|e5m2x2> : b16 -> f16x2",
)

_APPROXIMATE = (
    "<ex2|lg2|sin|cos|rcp|rsqrt|sqrt>.approx<|.ftz>.f32 : f32 -> f32",
    "tanh.approx.f32 : f32 -> f32",
    "div.<approx|full><|.ftz>.f32 : f32 f32 -> f32",
    "rcp.approx.ftz.f64 : f64 -> f64",
    "rsqrt.approx<|.ftz>.f64 : f64 -> f64",
    "ex2.approx.f16 : f16 -> f16",
    "ex2.approx.ftz.bf16 : bf16 -> bf16",
    "tanh.approx.f16 : f16 -> f16",
    "tanh.approx.bf16 : bf16 -> bf16",
)

_MATRIX = (
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 $d, $a, {$b}, $c : f16x2*2 f16x2 f32*4 -> f32*4",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 : f16x2*4 f16x2*2 f32*4 -> f32*4",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 : f16x2*4 f16x2*2 f16x2*2 -> f16x2*2",
    "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 $d, $a, {$b}, $c : bf16x2*2 bf16x2 f32*4 -> f32*4",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 : bf16x2*4 bf16x2*2 f32*4 -> f32*4",
    "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 $d, $a, {$b}, $c : tf32*2 tf32 f32*4 -> f32*4",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 : tf32*4 tf32*2 f32*4 -> f32*4",
    "mma.sync.aligned.m16n8k32.row.col.f32.<e4m3|e5m2>.<e4m3|e5m2>.f32 : e4m3x4*4 e4m3x4*2 f32*4 -> f32*4",
)

# turns any bits into valid metadata of 2:4 sparsity
_METADATA = "and.b32 t, $e, 0x88888888; or.b32 t, t, 0x44444444; mma.sp::ordered_metadata.sync.aligned"
_EXACT_MATRIX = (
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 $d, {$a}, {$b}, $c : f64 f64 f64*2 -> f64*2",
    "mma.sync.aligned.m16n8k32.row.col<|.satfinite>.s32.<u8|s8>.<u8|s8>.s32 : b32*4 b32*2 b32*4 -> b32*4",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32 : b32*4 b32*2 b32*4 -> b32*4",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc : b32*4 b32*2 b32*4 -> b32*4",
    "mma.sync.aligned.m8n8k32.row.col<|.satfinite>.s32.<u4|s4>.u4.s32 $d, {$a}, {$b}, $c : b32 b32 b32*2 -> b32*2",
    "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.<xor|and>.popc $d, {$a}, {$b}, $c : b32 b32 b32*2 -> b32*2",
    f"{_METADATA}.m16n8k32.row.col.s32.s8.u8.s32 $d, $a, $b, $c, t, <0|1> : b32*2 b32*2 b32*4 b32 -> b32*4",
    f"{_METADATA}.m16n8k64.row.col<|.satfinite>.s32.u8.s8.s32 $d, $a, $b, $c, t, 0 : b32*4 b32*4 b32*4 b32 -> b32*4",
    f"{_METADATA}.m16n8k64.row.col.s32.s4.s4.s32 $d, $a, $b, $c, t, <0|1> : b32*2 b32*2 b32*4 b32 -> b32*4",
    f"{_METADATA}.m16n8k128.row.col.s32.u4.u4.s32 $d, $a, $b, $c, t, 0 : b32*4 b32*4 b32*4 b32 -> b32*4",
)

CASES: tuple[Case, ...] = (
    *expand((*_INTEGER, *_VIDEO, *_BITS, *_FLOAT, *_COMPARE, *_CONVERT, *_EXACT_MATRIX)),
    *expand((*_APPROXIMATE, *_MATRIX), exact=False),
)
