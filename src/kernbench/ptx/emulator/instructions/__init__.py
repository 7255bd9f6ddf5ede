"""Instruction semantics: a maker for each meaning of the ISA table gives a decoded instruction its step or control."""

from collections.abc import Callable, Mapping

from kernbench.ptx.emulator.instructions import (
    atomics,
    barrier,
    bulk,
    cluster,
    control,
    copies,
    lanewise,
    mbarrier,
    memory,
    moves,
    stack,
    video,
    warp,
)
from kernbench.ptx.emulator.instructions.matrix import matrix, multiply, tcgen05, wgmma
from kernbench.ptx.emulator.program.facts import FromFacts
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.steps import ControlStep, Step

Maker = Callable[[Decoding], "Step | ControlStep | FromFacts"]

MEANINGS: Mapping[str, Maker] = {
    **lanewise.MEANINGS,
    **video.MEANINGS,
    **moves.MEANINGS,
    **stack.MEANINGS,
    **memory.MEANINGS,
    **atomics.MEANINGS,
    **copies.MEANINGS,
    **matrix.MEANINGS,
    **multiply.MEANINGS,
    **control.MEANINGS,
    **warp.MEANINGS,
    **barrier.MEANINGS,
    **mbarrier.MEANINGS,
    **bulk.MEANINGS,
    **cluster.MEANINGS,
    **wgmma.MEANINGS,
    **tcgen05.MEANINGS,
}
_REFUSED = {
    "cp.tensor.im2col": "of the im2col modes, those of W alone (im2col::w, im2col::w::128) are not emulated",
    **dict.fromkeys(("multimem.ld_reduce", "multimem.st", "multimem.red"), "it works on the memory of several devices"),
    **dict.fromkeys(("tcgen05.mma.sp", "tcgen05.mma.ws.sp"), "sparse matrices run with mma.sp and wgmma.sp only"),
}


def meaning_of(decoding: Decoding) -> Step | ControlStep | FromFacts:
    """The step or control of a decoded instruction."""
    meaning = decoding.resolved.meaning
    maker = MEANINGS.get(meaning)
    if maker is None:
        raise decoding.error(f"the emulator cannot run {decoding.instruction.name}: {_REFUSED[meaning]}")
    return maker(decoding)
