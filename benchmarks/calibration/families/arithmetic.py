"""Arithmetic: latency of dependent and throughput of independent instructions, by pipe, and mixes of pipes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..case import Case, Data, Words
from ..source import Source, lines

LANES = NDArray[Any]
UNROLLS = (32, 128)
INDEPENDENT = 8
WARPS = (4, 8, 16, 32)


@dataclass(frozen=True)
class Operation:
    """An instruction with `{x}` where its chain goes through; `a` and `b` are 1 (as f32, f16x2, f64 or integer)."""

    pipe: str
    text: str
    bank: str = "f"
    # what one instruction makes of `x`, where that is simple to say
    meaning: Callable[[LANES], LANES] | None = None
    # machine instructions that ptxas makes of it
    instructions: int = 1


OPERATIONS = (
    Operation("fma", "fma.rn.f32 {x}, {x}, %f600, %f601;", "f", lambda x: x + np.float32(1)),
    # one IADD3 adds both
    Operation("integer", "add.s32 {x}, {x}, %r500;\nadd.s32 {x}, {x}, %r504;", "r", lambda x: x + np.uint32(4)),
    Operation("logic", "lop3.b32 {x}, {x}, %r500, %r501, 0x96;", "r"),
    Operation("multiply", "mad.lo.s32 {x}, {x}, %r500, %r501;", "r", lambda x: x + np.uint32(1)),
    Operation("minmax", "max.f32 {x}, {x}, %f602;\nmin.f32 {x}, {x}, %f603;", "f", instructions=2),
    Operation("half2", "fma.rn.bf16x2 {x}, {x}, %r502, %r503;", "r"),
    Operation("double", "fma.rn.f64 {x}, {x}, %e60, %e61;", "e"),
    Operation("convert", "cvt.rn.bf16x2.f32 {x}, {x}, %f600;", "m"),
    Operation("mufu", "ex2.approx.ftz.f32 {x}, {x};", "f"),
    Operation("shuffle", "shfl.sync.bfly.b32 {x}, {x}, 1, 31, -1;", "r", lambda x: x),
)
OPERANDS = lines(
    "ld.global.f32 %f600, [%data];",
    "ld.global.f32 %f601, [%data+4];",
    "ld.global.f32 %f602, [%data+8];",
    "ld.global.f32 %f603, [%data+12];",
    "cvt.rzi.u32.f32 %r500, %f600;",
    "cvt.rzi.u32.f32 %r501, %f601;",
    "sub.u32 %r501, %r501, %r500;",
    "add.u32 %r501, %r501, 1;",
    "cvt.rn.bf16x2.f32 %r502, %f600, %f600;",
    "cvt.rn.bf16x2.f32 %r503, %f601, %f601;",
    "ld.global.u32 %r504, [%data+16];",
    "shr.u32 %r504, %r504, 30;",
    "mad.lo.u32 %r504, %r504, 3, 3;",
    # by lane: an assembler drops shuffles of what is the same in all
    "mad.wide.u32 %d100, %lane, 4, %data;",
    "ld.global.f32 %f604, [%d100+128];",
    "cvt.rzi.u32.f32 %r505, %f604;",
    "cvt.f64.f32 %e60, %f600;",
    "cvt.f64.f32 %e61, %f601;",
)


def _register(bank: str, number: int) -> str:
    return f"%{'f' if bank == 'm' else bank}{number}"


def _chain(operation: Operation, register: str) -> str:
    """One step of a chain; where the result has another type, its bits go on."""
    if operation.bank == "m":
        instruction = operation.text.replace("{x}", "%r400", 1).format(x=register)
        return lines(instruction, f"mov.b32 {register}, %r400;")
    return operation.text.format(x=register)


def _begun(bank: str, number: int) -> str:
    """A register set to 1, of memory, so that nothing is known of it."""
    register = _register(bank, number)
    return {
        "f": f"mov.b32 {register}, %f600;",
        "m": f"mov.b32 {register}, %f600;",
        "r": f"mov.b32 {register}, %r505;",
        "e": f"mov.f64 {register}, %e60;",
    }[bank]


def _kept(bank: str, number: int) -> str:
    """Fold a register into the result."""
    register = _register(bank, number)
    if bank == "e":
        return lines(f"cvt.rn.f32.f64 %f610, {register};", "mov.b32 %r401, %f610;", "xor.b32 %result, %result, %r401;")
    if bank in "fm":
        return lines(f"mov.b32 %r401, {register};", "xor.b32 %result, %result, %r401;")
    return f"xor.b32 %result, %result, {register};"


def source(name: str, operation: Operation, chains: int, unroll: int) -> Source:
    """`unroll` instructions a turn, over `chains` registers in turn."""
    body = [_chain(operation, _register(operation.bank, step % chains)) for step in range(unroll)]
    return Source(
        name,
        lines(*body),
        lines(OPERANDS, *(_begun(operation.bank, n) for n in range(chains))),
        lines(*(_kept(operation.bank, n) for n in range(chains))),
    )


def _expected(operation: Operation, steps: int, threads: int) -> Words | None:
    """The bits of one chain of `steps`, in each thread."""
    if operation.meaning is None:
        return None
    value: LANES = np.ones(threads, np.float32 if operation.bank in "fm" else np.uint32)
    for _ in range(steps):
        value = operation.meaning(value)
    return value.view(np.uint32)


def latencies() -> Iterator[Case]:
    """One warp, one chain: each instruction waits for the one before."""
    for operation in OPERATIONS:
        for unroll in UNROLLS:
            yield Case(
                f"latency.{operation.pipe}",
                source(f"latency_{operation.pipe}_{unroll}", operation, 1, unroll),
                {"unroll": unroll},
                unroll * operation.instructions,
                "instructions",
                expected=_expected(operation, 2 * unroll, 32),
            )


def throughputs() -> Iterator[Case]:
    """Several chains a warp, and one to eight warps a sub-core."""
    for operation in OPERATIONS:
        for warps in WARPS:
            yield Case(
                f"throughput.{operation.pipe}",
                source(f"throughput_{operation.pipe}", operation, INDEPENDENT, 128),
                {"warps": warps},
                128 * operation.instructions * warps / 4,
                "instructions of a sub-core",
                block=32 * warps,
            )


def mixes() -> Iterator[Case]:
    """The body of a softmax: for each MUFU, some FMA and a maximum; what pipes overlap, and what they share."""
    for fmas in (0, 4, 8, 16):
        steps: list[str] = []
        for element in range(16):
            x, y = f"%f{element}", f"%f{16 + element}"
            steps += [f"fma.rn.f32 {y}, {y}, %f600, %f601;"] * fmas
            steps += [f"ex2.approx.ftz.f32 {x}, {x};", f"max.f32 {y}, {y}, %f602;"]
        begun = lines(OPERANDS, *(_begun("f", n) for n in range(32)))
        made = Source(f"mix_{fmas}", lines(*steps), begun, lines(*(_kept("f", n) for n in range(32))))
        for warps in (4, 16):
            work = 16 * warps / 4
            yield Case("mix.softmax", made, {"fmas": fmas, "warps": warps}, work, "elements", block=32 * warps)


def branches() -> Iterator[Case]:
    """A loop with nearly nothing in it, and loops of up to 128 KiB of code."""
    body = "mad.lo.u32 %r0, %r0, %r500, %turn;"
    counted = Source("branch_back", body, lines(OPERANDS, "mov.u32 %r0, 0;"), "mov.b32 %result, %r0;")
    yield Case("branch.back", counted, {}, 1, "turns", turns=(1024, 3072), expected=np.full(32, 1, np.uint32))
    operation = OPERATIONS[0]
    for instructions in (64, 256, 1024, 2048, 4096, 8192):
        yield Case(
            "code",
            source(f"code_{instructions}", operation, INDEPENDENT, instructions),
            {"bytes": 16 * instructions},
            instructions,
            "instructions",
            turns=(16, 48),
            block=128,
            data=Data(),
        )
