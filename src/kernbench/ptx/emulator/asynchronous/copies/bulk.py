"""Bulk copies of plain byte ranges between global and shared memory."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.agents import Agent, Chosen
from kernbench.ptx.emulator.asynchronous.copies import tile_kernels as kernels
from kernbench.ptx.emulator.asynchronous.copies.begin_kernels import ENDS, LIMIT, START, find_ends
from kernbench.ptx.emulator.asynchronous.copies.completion import Completion, distinct
from kernbench.ptx.emulator.asynchronous.hub import AsynchronousBatch
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE
from kernbench.ptx.emulator.memory.shadow import Ranges
from kernbench.ptx.emulator.observer.origins import Origin
from kernbench.ptx.emulator.program.program import Site

ALIGNMENT = 16
_EVERY_BYTE = 0xFFFF
_NO_DIRTY = np.zeros(1, bool)
# from old and new bytes to results
Reduction = Callable[[Array, Array], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Ends:
    """One end of copies: its space, the offset of each in the space's array, and where the space ends for it."""

    space: str
    starts: Array
    limits: Array

    def chosen(self, which: Array) -> "Ends":
        """The ends of some operations."""
        return Ends(self.space, self.starts[which], self.limits[which])


def global_ends(batch: AsynchronousBatch, addresses: Array) -> Ends:
    """Ends in global memory."""
    arena = batch.launch.arena
    used = arena.used
    if arena.aliases is not None:
        addresses = arena.aliases.translated(addresses)
    return Ends("global", (addresses - np.uint64(GLOBAL_BASE)).astype(np.int64), np.full(len(addresses), used))


def shared_ends(batch: AsynchronousBatch, ctas: Array, offsets: Array) -> Ends:
    """Ends in the shared memory of CTAs of the batch; an end outside has a limit of -1."""
    size, stride = batch.launch.shared_bytes, batch.shared_stride
    origins = np.maximum(ctas, 0) * stride
    limits = np.where((ctas >= 0) & (offsets < size), origins + size, -1)
    return Ends("shared", origins + offsets, limits)


def locate_shared(batch: AsynchronousBatch, addresses: Array, lanes: Array) -> tuple[Array, np.uint64]:
    """Locate shared addresses of lanes, in the rows of `begin_kernels`.

    Also returns the bitwise or of all addresses.
    """
    found: Array = np.empty((ENDS, len(lanes)), np.int64)
    size, stride = batch.launch.shared_bytes, batch.shared_stride
    return found, find_ends(addresses, lanes, batch.ctas, batch.cluster.size, size, stride, found)


def ends_at(located: Array) -> Ends:
    """Ends at located offsets of shared memory."""
    return Ends("shared", located[START], located[LIMIT])


def begin_copy(
    batch: AsynchronousBatch,
    source: Ends,
    target: Ends,
    sizes: Array,
    completion: Completion,
    site: Site,
    kept: Array | None = None,
    reduction: Reduction | None = None,
) -> None:
    """Begin copies; `kept` masks bytes of each 16, `reduction` combines with the target's contents."""
    copy = _Copy(batch, source, target, sizes.astype(np.int64), completion, site, kept, reduction)
    count = len(sizes)
    # only findings depend on which copies are equal, and finding out takes a sort
    if batch.checks.checking:
        once = distinct(completion.lanes, source.starts, target.starts, copy.sizes)
        completion.enter(source.space, False, _ranges(source, copy.sizes, once))
        completion.enter(target.space, True, _ranges(target, copy.sizes, once), reduction is not None)
    if count:
        batch.agents.begin(
            Agent(
                completion.kind, site, completion.lanes, copy.perform, completion.signal, copy.reads, completion.group
            )
        )


def begin_write(
    batch: AsynchronousBatch,
    data: Array,
    target: Ends,
    completion: Completion,
    site: Site,
    reduction: Reduction | None,
    undefined: tuple[Array, Origin] | None = None,
) -> None:
    """Begin writes of values (a row each) to shared memory; `undefined` are their undefined bytes, [rows, bytes]."""
    if not len(data):
        return
    rows = np.ascontiguousarray(data).view(np.uint8).reshape(len(data), -1)
    sizes = np.full(len(rows), rows.shape[1], np.int64)
    copy = _Copy(batch, target, target, sizes, completion, site, None, reduction)
    copy.preset(rows, undefined)
    completion.enter(target.space, True, _ranges(target, sizes, np.arange(len(sizes))), reduction is not None)
    batch.agents.begin(
        Agent(completion.kind, site, completion.lanes, copy.perform, completion.signal, None, completion.group)
    )


def _ranges(ends: Ends, sizes: Array, chosen: Array) -> Ranges:
    """The bytes of some copies that are inside their space."""
    legal = chosen[((ends.starts >= 0) & (ends.starts + sizes <= ends.limits))[chosen]]
    return Ranges(ends.starts[legal], sizes[legal], legal)


class _Copy:
    """The state of one instruction's copies."""

    def __init__(
        self,
        batch: AsynchronousBatch,
        source: Ends,
        target: Ends,
        sizes: Array,
        completion: Completion,
        site: Site,
        kept: Array | None,
        reduction: Reduction | None,
    ):
        self._batch, self._source, self._target, self.sizes = batch, source, target, sizes
        self._lanes, self._site, self._reduction = completion.lanes, site, reduction
        self._kept = np.full(len(sizes), _EVERY_BYTE) if kept is None else kept
        self._firsts = np.r_[0, np.cumsum(sizes)[:-1]] if len(sizes) else sizes
        self._staged = np.zeros(int(sizes.sum()), np.uint8)
        self._undefined: tuple[Array, Origin] | None = None

    def preset(self, rows: Array, undefined: tuple[Array, Origin] | None) -> None:
        """Set the data to be written, and which bytes of it are undefined."""
        self._staged[...] = rows.reshape(-1)
        self._undefined = undefined

    def reads(self, chosen: Chosen) -> None:
        """Read the sources now."""
        self._take(self._source, chosen, self._staged)

    def _take(self, ends: Ends, chosen: Chosen, staged: Array) -> None:
        report = kernels.new_report()
        space, checked = self._batch.port.space(ends.space), self._batch.checks.checking
        code = kernels.GLOBAL_OUTSIDE if ends.space == "global" else kernels.SHARED_OUTSIDE
        kernels.take_ranges(
            space.words[1], space.state[1], checked, ends.starts, ends.limits, self.sizes, self._firsts, chosen, staged,
            code, report,
        )  # fmt: skip
        report_trouble(self._batch, report, self._lanes, self._site, "load")

    def perform(self, chosen: Chosen) -> None:
        """Write what was read; reductions run one after the other, as targets may be equal."""
        if self._reduction is None:
            self._put(chosen)
            return
        old = np.zeros_like(self._staged)
        for number, op in enumerate(chosen):
            one = chosen[number : number + 1]
            self._take(self._target, one, old)
            part = slice(int(self._firsts[op]), int(self._firsts[op] + self.sizes[op]))
            self._staged[part] = self._reduction(old[part], self._staged[part])
            self._put(one)

    def _put(self, chosen: Chosen) -> None:
        target, staged, report = self._target, self._staged, kernels.new_report()
        space, checked = self._batch.port.space(target.space), self._batch.checks.checking
        code = kernels.GLOBAL_OUTSIDE if target.space == "global" else kernels.SHARED_OUTSIDE
        kernels.put_ranges(
            space.words[1], space.state[1], space.dirty if target.space == "global" else _NO_DIRTY, checked,
            target.starts, target.limits, self.sizes, self._firsts, chosen, staged, self._kept, code, report,
        )  # fmt: skip
        self._batch.port.changes += 1
        if self._undefined is not None:
            self._unwrite(chosen, *self._undefined)
        report_trouble(self._batch, report, self._lanes, self._site, "store")

    def _unwrite(self, chosen: Chosen, undefined: Array, origin: Origin) -> None:
        """Undefined bytes of what was written count as unwritten."""
        which = np.asarray(chosen)
        starts, limits = self._target.starts[which], self._target.limits[which]
        legal = (starts >= 0) & (starts + undefined.shape[1] <= limits)
        spots = (starts[:, None] + np.arange(undefined.shape[1]))[undefined[which] & legal[:, None]]
        if spots.size:
            self._batch.checks.undefined.copied(spots, origin, self._site)


_CODES = (
    ("out-of-bounds", "global"),
    ("uninitialised-read", "global"),
    ("out-of-bounds", "shared"),
    ("uninitialised-read", "shared"),
)


def report_trouble(batch: AsynchronousBatch, report: Array, lanes: Array, site: Site, what: str) -> None:
    """Pass the faults of a compiled move to the checks."""
    if not np.count_nonzero(report):
        return
    for (kind, space), (count, operation, offset) in zip(_CODES, report.tolist(), strict=True):
        if count:
            address = offset + GLOBAL_BASE if space == "global" else offset % batch.shared_stride
            direction = "load" if kind == "uninitialised-read" else what
            batch.checks.bad_copy(space, site, direction, kind, address, int(lanes[operation]), count)
