"""Rows on disk: numbers and names, kept by the program's text, so that a program that was seen before is not decoded.

An operation is kept by its name, which finds its machine code. Where that is missing (it was removed, or is of another
kind of machine), the rows are made again from the text.
"""

import json
import logging
from collections.abc import Callable

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.analysis.building import drop_decoded, is_kept
from kernbench.ptx.emulator.kept import files
from kernbench.ptx.emulator.lanes.slots import ArgumentSlot, ConstantSlot, Slot, SpecialSlot, SymbolSlot
from kernbench.ptx.emulator.program.program import Program
from kernbench.ptx.executor.compiling import Named, NoCodeError, addresses
from kernbench.ptx.executor.ops.layout import RECORD_BYTES
from kernbench.ptx.executor.rows import Names, Rows

_LOG = logging.getLogger(__name__)
# what is wrong with bytes that are no rows
_DAMAGED = (ValueError, KeyError, TypeError, IndexError)
_SLOTS: dict[str, Callable[..., Slot]] = {
    kind.__name__: kind for kind in (ArgumentSlot, ConstantSlot, SpecialSlot, SymbolSlot)
}


def kept_or_made(program: Program, make: Callable[[], Rows | str]) -> Rows | str:
    """The rows of a program, or the reason why it has none: from the disk, or made and kept there."""
    if not is_kept(program.kernel.module):
        return make()
    name = files.name_of(program.kernel.module.source, "rows", program.kernel.name, program.aliased)
    found = _kept(name)
    if found is None:
        found = make()
        files.write(name, to_bytes(found))
    else:
        drop_decoded(program)
    return found


def _kept(name: str) -> Rows | str | None:
    """Rows whose operations can be run, or a reason."""
    data = files.read(name)
    if data is None:
        return None
    try:
        found = from_bytes(data)
        if isinstance(found, Rows):
            addresses(found.known)
    except (NoCodeError, *_DAMAGED) as error:
        _LOG.info("kept rows are not usable, and are made anew: %s", error)
        return None
    except (RuntimeError, OSError) as error:
        # there is no compiler to link the machine code with: whoever runs them says so
        _LOG.info("kept rows are not linked: %s", error)
    return found


def to_bytes(found: Rows | str) -> bytes:
    """Rows as a line of JSON and the bytes of their columns; a reason as a line of JSON."""
    if isinstance(found, str):
        return json.dumps({"reason": found}).encode()
    head = {
        "rows": len(found.operations),
        "known": [one.name for one in found.known],
        "values": [[at, type(slot).__name__, *_fields(slot)] for at, slot in found.values],
        "nbytes": found.nbytes,
        "entry": found.entry,
        "clocked": found.clocked,
        "parallel": found.is_parallel,
        "unset": found.unset,
        "registers": found.names.registers,
        "blocks": found.names.blocks,
    }
    columns = [one.tobytes() for one in (found.code, found.operations, found.names.counts)]
    return b"".join([json.dumps(head).encode(), b"\n", *columns])


def _fields(slot: Slot) -> list[object]:
    return [getattr(slot, name) for name in slot.__match_args__]


def from_bytes(data: bytes) -> Rows | str:
    """Rows, or a reason; raises an error of `_DAMAGED` for bytes that are neither."""
    line, _, columns = data.partition(b"\n")
    head = json.loads(line)
    if "reason" in head:
        return str(head["reason"])
    count = int(head["rows"])
    sizes = ((count + 1) * RECORD_BYTES, count * 4, count * 2)
    begins = (0, sizes[0], sizes[0] + sizes[1])
    if sum(sizes) != len(columns):
        raise ValueError(f"{len(columns)} bytes for {count} rows")
    code, operations, counts = (
        _column(columns, begin, size, dtype)
        for begin, size, dtype in zip(begins, sizes, ("u1", "i4", "u1"), strict=True)
    )
    known = tuple(Named(name) for name in head["known"])
    values = tuple((at, _SLOTS[kind](*given)) for at, kind, *given in head["values"])
    registers, blocks = (tuple((at, what) for at, what in head[name]) for name in ("registers", "blocks"))
    names = Names(registers, blocks, counts.reshape(-1, 2))
    return Rows(
        code.reshape(-1, RECORD_BYTES),
        operations,
        known,
        values,
        head["nbytes"],
        head["entry"],
        bool(head["clocked"]),
        bool(head["parallel"]),
        tuple(int(one) for one in head["unset"]),
        names,
    )


def _column(data: bytes, begin: int, size: int, dtype: str) -> Array:
    found: Array = np.frombuffer(data, dtype, size // np.dtype(dtype).itemsize, begin)
    return found
