"""Rates of instructions that share a pipe with others, one kind at a time, and beside an instruction of a known pipe.

A pipe has one rate for plain instructions (`arithmetic`); multiplications whose high half is wanted, conversions,
counts of bits and the like have others. Two kinds in turn take as long as both together where they go through the same
pipe, and as long as the slower one where they do not.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..case import Case
from ..source import Source, lines
from .arithmetic import OPERANDS

# by the %r, %f and %e registers of `arithmetic`, whose values only a launch knows; %p5 and %p6 are two predicates
SETUP = lines(
    OPERANDS,
    "cvt.u64.u32 %d100, %r500;",
    "setp.gt.u32 %p5, %r505, %r504;",
    "setp.lt.u32 %p6, %r505, %r504;",
)
INDEPENDENT, UNROLL, PAIRS = 8, 128, 64
WARPS = (16, 32)


@dataclass(frozen=True)
class Kind:
    """PTX of one step of a chain through `{x}`, a register of 32 bits, or of 64 (`wide`) or a double (`double`).

    `opcodes` are the machine instructions that ptxas makes of it, those that are of this kind first.
    """

    name: str
    text: str
    opcodes: str
    bank: str = "r"

    def step(self, register: int) -> str:
        """One step of the chain of a register."""
        return self.text.format(x=f"%{self.bank}{register}")

    def begun(self, register: int) -> str:
        """A register set to what only a launch knows."""
        given = {"r": "mov.b32 %r{n}, %r505;", "d": "cvt.u64.u32 %d{n}, %r505;", "e": "mov.f64 %e{n}, %e60;"}
        return given[self.bank].format(n=register)

    def kept(self, register: int) -> str:
        """Fold a register into the result."""
        made = {
            "r": "mov.b32 %r401, %r{n};",
            "d": "mov.b64 {{%r401, %r402}}, %d{n};\nmad.lo.u32 %r401, %r402, %r504, %r401;",
            "e": "cvt.rn.f32.f64 %f610, %e{n};\nmov.b32 %r401, %f610;",
        }
        return lines(made[self.bank].format(n=register), "xor.b32 %result, %result, %r401;")


_HALVES = "mov.b32 {{%h0, %h1}}, {x};\n"
KINDS = (
    Kind("add_f32", "add.rn.f32 {x}, {x}, %f600;", "FADD"),
    Kind("multiply_f32", "mul.rn.f32 {x}, {x}, %f600;", "FMUL"),
    Kind("multiply_high", "mad.hi.u32 {x}, {x}, %r500, %r501;", "IMAD.HI"),
    Kind("multiply_wide", "mov.b64 {{%r400, %r401}}, {x};\nmul.wide.u32 {x}, %r400, %r401;", "IMAD.WIDE", "d"),
    Kind("multiply_bytes", "dp4a.s32.s32 {x}, {x}, %r500, %r501;", "IDP"),
    Kind("permute", "prmt.b32 {x}, {x}, %r500, %r501;", "PRMT"),
    Kind("shift", "shf.l.wrap.b32 {x}, {x}, %r500, %r501;", "SHF"),
    Kind("select", "selp.b32 {x}, {x}, %r500, %p5;\nselp.b32 {x}, %r501, {x}, %p6;", "SEL SEL"),
    Kind("compare", "setp.gt.u32 %p7, {x}, %r500;\nselp.b32 {x}, %r501, {x}, %p7;", "ISETP SEL"),
    Kind("compare_f32", "setp.gt.f32 %p7, {x}, %f600;\nselp.f32 {x}, %f601, {x}, %p7;", "FSETP FSEL"),
    Kind("minmax_s32", "max.s32 {x}, {x}, %r500;\nmin.s32 {x}, {x}, %r504;", "VIMNMX VIMNMX"),
    Kind("minmax_f16", "max.f16x2 {x}, {x}, %r502;\nmin.f16x2 {x}, {x}, %r503;", "HMNMX2 HMNMX2"),
    Kind("fma_f16", "fma.rn.f16x2 {x}, {x}, %r502, %r503;", "HFMA2"),
    Kind("add_f16", "add.rn.f16x2 {x}, {x}, %r502;", "HADD2"),
    Kind("multiply_f16", "mul.rn.f16x2 {x}, {x}, %r502;", "HMUL2"),
    Kind("f16_to_f32", _HALVES + "cvt.f32.f16 {x}, %h0;", "HADD2.F32"),
    Kind("f32_to_f16", "cvt.rn.f16x2.f32 {x}, {x}, %f600;", "F2FP"),
    Kind("s32_to_f32", "cvt.rn.f32.s32 {x}, {x};", "I2FP"),
    Kind("s16_to_f32", _HALVES + "cvt.rn.f32.s16 {x}, %h0;", "I2F"),
    Kind("s8_to_f32", "cvt.rn.f32.s8 {x}, {x};", "I2F"),
    Kind("u8_to_f32", "cvt.rn.f32.u8 {x}, {x};", "I2F"),
    Kind("f32_to_s32", "cvt.rzi.s32.f32 {x}, {x};", "F2I"),
    Kind("f32_to_s8", "cvt.rzi.s8.f32 {x}, {x};", "F2I"),
    Kind("round_f32", "cvt.rmi.f32.f32 {x}, {x};\nadd.rn.f32 {x}, {x}, %f600;", "FRND FADD"),
    Kind("f32_f64", "cvt.f64.f32 %e50, {x};\ncvt.rn.f32.f64 {x}, %e50;", "F2F F2F"),
    Kind("s32_f64", "cvt.rn.f64.s32 %e50, {x};\ncvt.rzi.s32.f64 {x}, %e50;", "I2F F2I"),
    Kind("rcp", "rcp.approx.ftz.f32 {x}, {x};\nadd.rn.f32 {x}, {x}, %f600;", "MUFU FADD"),
    Kind("rsqrt", "rsqrt.approx.ftz.f32 {x}, {x};", "MUFU"),
    Kind("lg2", "lg2.approx.ftz.f32 {x}, {x};", "MUFU"),
    Kind("sqrt", "sqrt.approx.ftz.f32 {x}, {x};", "MUFU"),
    Kind("tanh", "tanh.approx.f32 {x}, {x};", "MUFU"),
    Kind("sin", "sin.approx.ftz.f32 {x}, {x};", "MUFU FMUL"),
    Kind("ex2_f16x2", "ex2.approx.f16x2 {x}, {x};", "MUFU MUFU"),
    Kind("popc", "popc.b32 {x}, {x};\nlop3.b32 {x}, {x}, %r500, %r501, 0x96;", "POPC LOP3"),
    Kind("flo", "bfind.u32 {x}, {x};", "FLO"),
    Kind("brev", "brev.b32 {x}, {x};\nlop3.b32 {x}, {x}, %r500, %r501, 0x96;", "BREV LOP3"),
    Kind("vote", "setp.gt.u32 %p7, {x}, %lane;\nvote.sync.ballot.b32 {x}, %p7, -1;", "VOTE ISETP"),
    Kind("redux", "redux.sync.add.s32 {x}, {x}, -1;\nxor.b32 {x}, {x}, %r505;", "REDUX LOP3"),
    Kind("add_f64", "add.rn.f64 {x}, {x}, %e61;", "DADD", "e"),
    Kind("multiply_f64", "mul.rn.f64 {x}, {x}, %e61;", "DMUL", "e"),
    Kind("add_s64", "add.u64 {x}, {x}, %d100;", "IADD3 IADD3", "d"),
)
# what one kind is put beside: an instruction of either half of the FMA pipe, of the half that multiplies integers, of
# the ALU and of MUFU
BESIDE = {
    "fma": Kind("fma", "fma.rn.f32 {x}, {x}, %f600, %f601;", "FFMA"),
    "multiply": Kind("multiply", "mad.lo.s32 {x}, {x}, %r500, %r501;", "IMAD"),
    "logic": Kind("logic", "lop3.b32 {x}, {x}, %r500, %r501, 0x96;", "LOP3"),
    "mufu": Kind("mufu", "ex2.approx.ftz.f32 {x}, {x};", "MUFU"),
}
PAIRED = (
    "multiply_high", "multiply_wide", "multiply_bytes", "permute", "shift", "minmax_s32", "minmax_f16", "fma_f16",
    "add_f16", "f16_to_f32", "f32_to_f16", "s32_to_f32", "s16_to_f32", "s8_to_f32", "f32_to_s32", "popc", "flo",
    "add_f64", "add_f32", "f32_f64", "vote", "redux",
)  # fmt: skip


def source(name: str, kinds: tuple[Kind, ...], count: int, chains: int = INDEPENDENT) -> Source:
    """`count` steps of each kind in turn, each kind on registers of its own."""
    body = [kind.step(16 * at + step % chains) for step in range(count) for at, kind in enumerate(kinds)]
    every = [(kind, 16 * at + n) for at, kind in enumerate(kinds) for n in range(chains)]
    begun = [kind.begun(register) for kind, register in every]
    return Source(name, lines(*body), lines(SETUP, *begun), lines(*(kind.kept(register) for kind, register in every)))


def throughputs() -> Iterator[Case]:
    """Several chains a warp, four and eight warps a sub-core."""
    for kind in KINDS:
        for warps in WARPS:
            yield Case(
                f"opcode.{kind.name}", source(f"opcode_{kind.name}", (kind,), UNROLL), {"warps": warps},
                UNROLL * warps / 4, "steps of a sub-core", block=32 * warps,
            )  # fmt: skip


def latencies() -> Iterator[Case]:
    """One warp, one chain."""
    for kind in KINDS:
        for unroll in (32, 128):
            name = f"opcode_latency_{kind.name}_{unroll}"
            yield Case(
                f"opcode_latency.{kind.name}", source(name, (kind,), unroll, 1), {"unroll": unroll}, unroll, "steps"
            )


def pairs() -> Iterator[Case]:
    """One of a kind and one of a known pipe in turn."""
    for kind in KINDS:
        if kind.name not in PAIRED:
            continue
        for name, other in BESIDE.items():
            yield Case(
                f"opcode_beside.{kind.name}", source(f"beside_{kind.name}_{name}", (kind, other), PAIRS),
                {"beside": name, "warps": 16}, PAIRS * 4, "pairs of a sub-core", block=512,
            )  # fmt: skip
