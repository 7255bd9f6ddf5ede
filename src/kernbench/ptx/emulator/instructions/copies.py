"""Asynchronous copies from global to shared memory, thread by thread."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.copies.thread_kernels import clear_words
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.program.operands import Decoding, Row
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.program.reports import Report
from kernbench.ptx.emulator.program.steps import Step, action, compute, cut
from kernbench.ptx.emulator.units.batch import Batch, Window
from kernbench.ptx.text.module import Name, Not

# unwritten bytes of each lane, and their origin
Undefined = tuple[Array, Any] | None


def begin(d: Decoding) -> Step:
    """cp.async: data is read now and arrives at the wait.

    Bytes beyond `src_size` are zeros; if that is a predicate that holds, all are.
    """
    size = d.constant_of(2) or 0
    if size not in (4, 8, 16):
        raise d.error(f"cp.async copies 4, 8 or 16 bytes, not {size}")
    target, source = d.address(0), d.address(1)
    limit = _limit(d, size)
    rows = np.array(d.bank_rows([d.temporary("uint32") for _ in range(size // 4)])[1], np.int64)
    d.traffic = ("global", "read", size)
    d.report = Report(
        d.site,
        d.effects.event,
        source.slot,
        source.offset,
        "global",
        size,
        target.slot,
        target.offset,
        cached=d.mod("cop") == "ca",
        limit=-1 if limit is None else limit,
    )
    site, to, by = d.site, np.uint64(target.offset), np.uint64(source.offset)
    left = () if limit is None else (limit,)
    d.row = Row("copy", (target.slot, source.slot, *left), (size, source.offset), target.offset)

    def general(window: Window, mask: Mask | None) -> None:
        batch = window.batch
        lanes = window.lane_numbers if mask is None else window.lane_numbers[mask]
        chosen = slice(None) if mask is None else mask
        destination = batch.port.addresses(window, target.slot)[chosen] + to
        origin = batch.port.addresses(window, source.slot)[chosen]
        left = None if limit is None else window.rows[limit][chosen]
        taken = None
        if batch.launch.fast.taken_copies:
            taken = batch.copies.take(lanes, origin, source.offset, left, destination, rows)
        if taken is None:
            undefined = _read(batch, origin, lanes, by, rows, left, site)
            batch.copies.begin(lanes, destination, rows, site, undefined)
            return
        undefined = None
        if taken.many:
            active = None if taken.many == lanes.size else taken.whole
            batch.port.note_loads(origin, lanes, by, size, active, site)
            undefined = _loaded(batch, None, lanes, 0, size)
        batch.copies.begin_taken(taken, lanes, destination, rows, site, undefined)

    return action(general)


def _limit(d: Decoding, size: int) -> int | None:
    """The slot with the number of bytes that each lane reads; None if all read all."""
    present = d.position("src_size")
    if present is None:
        return None
    operand = d.operands[present]
    negated = isinstance(operand, Not)
    name = operand.operand if isinstance(operand, Not) else operand
    register = d.scope.register(name.text) if isinstance(name, Name) else None
    if register is not None:
        d.amount_reads.append(register)
    if not negated and (register is None or register.type != "pred"):
        return d.row_slot(d.source(present))
    # the predicate says that the source is ignored
    kept, one, left = d.temporary("bool"), d.temporary("uint32"), d.temporary("uint32")
    d.before += [
        compute(np.logical_not, (d.source(present, "pred"),), (kept,)),
        compute(cut, (kept,), (one,)),
        compute(np.multiply, (one, d.table.constant(size, "uint32")), (left,)),
    ]
    return left


def _read(
    batch: Batch, origin: Array, lanes: Array, offset: Any, rows: Array, left: Array | None, site: Site
) -> Undefined:
    """Load the source's words; words beyond `left` bytes are zero, and are not read.

    Returns the unwritten bytes of each lane, if they are tracked.
    """
    port, registers = batch.port, batch.banks["uint32"]
    nbytes = 4 * len(rows)
    whole = None if left is None else left >= nbytes
    many = lanes.size if whole is None else np.count_nonzero(whole)
    if left is None or whole is None or many == lanes.size:
        port.load("global", origin, lanes, offset, "uint32", rows, None, site)
        return _loaded(batch, None, lanes, 0, nbytes)
    clear_words(registers, rows, lanes)
    undefined: Undefined = None
    if many:
        port.load("global", origin, lanes, offset, "uint32", rows, whole, site)
        undefined = _loaded(batch, undefined, lanes, 0, nbytes)
    # most lanes copy everything or nothing
    for number, row in enumerate(rows) if np.count_nonzero(left) > many else ():
        partial = ~whole & (left > 4 * number)
        if partial.any():
            word = np.array([row])
            port.load("global", origin, lanes, offset + np.uint64(4 * number), "uint32", word, partial, site)
            kept = np.clip(left.astype(np.int64) - 4 * number, 0, 4)
            undefined = _loaded(batch, undefined, lanes, 4 * number, nbytes, kept)
            bits = ((np.uint64(1) << (8 * kept).astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
            registers[row, lanes[partial]] &= bits[partial]
    return undefined


def _loaded(
    batch: Batch, before: Undefined, lanes: Array, first: int, nbytes: int, kept: Array | None = None
) -> Undefined:
    """Add the undefined bytes of the last load, from byte `first` of each copy on, to those found before.

    At most `kept` bytes of each copy count.
    """
    found = batch.checks.definedness.take_loaded()
    if found is None:
        return before
    undefined = np.zeros((lanes.size, nbytes), bool) if before is None else before[0]
    bad, origin = found.undefined, found.origin
    if kept is not None:
        bad = bad & (np.arange(bad.shape[1]) < kept[:, None])
    undefined[:, first : first + bad.shape[1]] |= bad
    return undefined, origin


def _lanes(window: Window, mask: Mask | None) -> Array:
    return window.lane_numbers if mask is None else window.lane_numbers[mask]


def commit(d: Decoding) -> Step:
    """cp.async.commit_group."""
    d.row = Row("commit")
    return action(lambda window, mask: window.batch.copies.commit(_lanes(window, mask)))


def wait(d: Decoding) -> Step:
    """cp.async.wait_group and wait_all."""
    keep = None if d.mod("op") == "wait_all" else d.constant_of(0)
    d.report = Report(d.site, d.effects.event, keep=-1 if keep is None else keep)
    d.row = Row("wait", (), (-1 if keep is None else keep,))
    return action(lambda window, mask: window.batch.copies.wait(_lanes(window, mask), keep))


MEANINGS: Mapping[str, Callable[[Decoding], Step]] = {
    "cp.async": begin,
    "cp.async.commit": commit,
    "cp.async.wait": wait,
}
