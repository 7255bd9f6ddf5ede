"""Video instructions: the parts of registers that they select, and their functions over rows."""

from collections.abc import Callable, Mapping

from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.steps import Step
from kernbench.ptx.isa.parts import split_part
from kernbench.ptx.numerics.integers.video import Parts, multiply_add, packed, scalar
from kernbench.ptx.text.module import Name


def _step(d: Decoding, make: Callable[[Parts], Callable[..., None]]) -> Step:
    """A step whose operands are registers without their part suffixes."""
    names, parts = [], []
    for operand, rule in zip(d.operands, d.resolved.rules, strict=True):
        base, part = split_part(operand.text) if isinstance(operand, Name) and rule.parts else ("", "")
        names.append(Name(base) if part else operand)
        parts.append(part)
    sources = [d.value(name, d.types[index]) for index, name in enumerate(names) if index]
    return d.compute(make(Parts(*parts[:3])), sources, [d.destination(names[0], d.types[0])])


def video(d: Decoding) -> Step:
    """One value from parts of two registers."""
    return _step(d, lambda parts: scalar(d.instruction.opcode, d.mods, parts))


def video_multiply_add(d: Decoding) -> Step:
    """vmad."""
    return _step(d, lambda parts: multiply_add(d.mods, parts))


def video_packed(d: Decoding) -> Step:
    """Two or four lanes of a register."""
    return _step(d, lambda parts: packed(d.instruction.opcode, d.mods, parts))


MEANINGS: Mapping[str, Callable[[Decoding], Step]] = {
    "video": video,
    "video.packed": video_packed,
    "vmad": video_multiply_add,
}
