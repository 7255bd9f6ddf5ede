"""Moves: copies, packing and unpacking, conversion of addresses between spaces, special registers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.packing import Packs, Unpacks
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, LOCAL_BASE, SHARED_BASE
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.steps import Step, action, compute, copy, copy_all
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.text.module import Name, Offset
from kernbench.ptx.text.types import TYPES

_CLOCKS = frozenset(("%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"))
_WINDOW = 44
_WINDOWS = {"shared": SHARED_BASE, "local": LOCAL_BASE}


def move(d: Decoding) -> Step:
    """mov of one value, or of the parts of a vector register."""
    operand = d.operands[1]
    if isinstance(operand, Name) and operand.text in _CLOCKS:
        return _clock(d, operand.text)
    if d.mod("type") == "b128":
        return d.compute(copy_all, d.halves(d.source(1)), d.halves(d.target(0)))
    if d.has("vec"):
        pairs = list(zip(d.sources(1), d.targets(0), strict=True))
        return d.compute(copy_all, [s for s, _ in pairs], [t for _, t in pairs])
    return compute(copy, (d.source(1),), (d.target(0),))


def _clock(d: Decoding, name: str) -> Step:
    """Clocks count logical steps, so that runs are reproducible."""
    target, site, number = d.target(0), d.site, d.following - 1
    high = name.endswith("_hi")

    def general(window: Window, mask: Mask | None) -> None:
        sites = window.batch.launch.program.blocks[number].sites
        now = window.batch.read_clock(len(sites) - sites.index(site)) >> (32 if high else 0)
        dtype = window.blank(target).dtype
        window.put(target, np.array(now & ((1 << 8 * dtype.itemsize) - 1), dtype), mask)

    return action(general)


def pack(d: Decoding) -> Step:
    """mov of several small values into a wide one; the first is the lowest."""
    parts = d.sources(1)
    if d.mod("type") == "b128":
        return _pack_wide(d, parts)
    width = TYPES[d.mod("type")].bits // len(parts)
    return d.compute(Packs(width), parts, [d.target(0)])


def _pack_wide(d: Decoding, parts: list[int]) -> Step:
    def function(*rows: Any) -> None:
        *sources, low, high = rows
        half = len(sources) // 2
        values = [_joined(sources[:half]), _joined(sources[half:])]
        low[...], high[...] = values

    return d.compute(function, parts, d.halves(d.target(0)))


def _joined(parts: list[Any]) -> Any:
    return (
        parts[0].copy() if len(parts) == 1 else parts[0].astype(np.uint64) | parts[1].astype(np.uint64) << np.uint64(32)
    )


def unpack(d: Decoding) -> Step:
    """mov of a wide value into several small ones."""
    parts = d.targets(0)
    if d.mod("type") == "b128":
        return d.compute(_unpack_wide, d.halves(d.source(1)), parts)
    width = TYPES[d.mod("type")].bits // len(parts)
    return d.compute(Unpacks(width), [d.source(1)], parts)


def _unpack_wide(low: Any, high: Any, *targets: Any) -> None:
    if len(targets) == 2:
        values = [low.copy(), high.copy()]
    else:
        values = [part >> np.uint64(shift) for part in (low, high) for shift in (0, 32)]
    for value, target in zip(values, targets, strict=True):
        target[...] = value


def convert_address(d: Decoding) -> Step:
    """cvta: shared and local windows have fixed generic addresses.

    Global, const and param addresses are generic already.
    """
    operand = d.operands[1]
    if isinstance(operand, (Name, Offset)):
        name = operand.text if isinstance(operand, Name) else operand.base.text
        if not d.known(name):
            source = d.row_slot(d.source(1))
            return _shifted(d, source)
    return _shifted(d, d.source(1))


def _shifted(d: Decoding, source: int) -> Step:
    window = _WINDOWS.get(d.mod("space").partition("::")[0], 0)
    target = d.target(0)
    if d.mod("space") == "param" and d.entry and d.mod("type") == "u64":
        # a compiler may have kept only the 32 bits of the address that the space needs
        return d.compute(np.bitwise_or, [source, d.table.constant(GLOBAL_BASE, "uint64")], [target])
    if window == 0 or d.mod("type") == "u32":
        return d.compute(copy, [source], [target])
    return d.compute(np.subtract if d.has("to") else np.add, [source, d.table.constant(window, "uint64")], [target])


def is_in_space(d: Decoding) -> Step:
    """isspacep: whether an address is in the window of a space."""
    space = d.mod("space").partition("::")[0]
    wanted = np.uint64(_WINDOWS.get(space, 0x1000_0000_0000) >> _WINDOW)

    def function(address: Any, out: Any) -> None:
        np.equal(address >> np.uint64(_WINDOW), wanted, out=out)

    return d.compute(function, [d.source(1, "b64")], [d.target(0)])


MEANINGS: Mapping[str, Callable[[Decoding], Step]] = {
    "mov": move,
    "pack": pack,
    "unpack": unpack,
    "cvta": convert_address,
    "isspacep": is_in_space,
}
