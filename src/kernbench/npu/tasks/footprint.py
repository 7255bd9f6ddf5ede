"""The elements of device memory that the blocks of one process read and wrote, and whether processes overlap."""

from dataclasses import dataclass

import numpy as np

from kernbench.npu.tasks.shadow import Ints
from kernbench.npu.tasks.task import Context

__kernbench_internal__ = True


@dataclass(frozen=True)
class Footprint:
    """By the number of a buffer: ranges (first element, one past the last) that were written, and ranges that were
    read; each list ascending and disjoint.
    """

    writes: dict[int, Ints]
    reads: dict[int, Ints]


def footprints(context: Context, first_block: int) -> Footprint:
    """The ranges that blocks from a number on touched, and that the orchestrator read meanwhile."""
    writes, reads = {}, {}
    asked = np.array(context.asked, np.int64).reshape(-1, 2)
    for buffer in context.buffers:
        written, read = buffer.shadow.touched_since(first_block)
        elements = asked[asked[:, 0] == buffer.number, 1]
        read = np.concatenate([read, np.column_stack([elements, elements + 1])])
        if len(written):
            writes[buffer.number] = _joined(written)
        if len(read):
            reads[buffer.number] = _joined(read)
    return Footprint(writes, reads)


def are_apart(found: list[Footprint]) -> bool:
    """Whether no process read or wrote what another wrote."""
    for buffer in {number for one in found for number in one.writes}:
        writes = [(owner, one.writes[buffer]) for owner, one in enumerate(found) if buffer in one.writes]
        spans = np.concatenate([spans for _, spans in writes])
        owners = np.repeat([owner for owner, _ in writes], [len(spans) for _, spans in writes])
        order = np.argsort(spans[:, 0], kind="stable")
        spans, owners = spans[order], owners[order]
        if (spans[1:, 0] < np.maximum.accumulate(spans[:, 1])[:-1]).any():
            return False
        for owner, one in enumerate(found):
            if buffer in one.reads and _meet(one.reads[buffer], spans[owners != owner]):
                return False
    return True


def adopt(context: Context, footprint: Footprint) -> None:
    """Record what blocks of other processes wrote."""
    for number, spans in footprint.writes.items():
        context.buffers[number].shadow.written_elsewhere(spans.tolist())


def _joined(spans: Ints) -> Ints:
    """Sorted ranges with adjacent and overlapping ones merged."""
    found = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(found[:, 1])
    begins = np.concatenate([[True], found[1:, 0] > ends[:-1]])
    lasts = np.concatenate([begins[1:], [True]])
    return np.column_stack([found[begins, 0], ends[lasts]])


def _meet(some: Ints, others: Ints) -> bool:
    """Whether a range of one list overlaps one of another."""
    if not len(others):
        return False
    behind = np.searchsorted(others[:, 1], some[:, 0], side="right")
    inside = behind < len(others)
    return bool((others[np.minimum(behind, len(others) - 1), 0] < some[:, 1])[inside].any())
