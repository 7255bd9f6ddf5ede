"""Checks of outputs at the end of a launch: elements never written, and copies that do not agree.

Each is reported at the kernel's first line that stores the output, with its other stores listed; at the kernel
itself (`where`) if no line does.
"""

from math import prod

import numpy as np

from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.pe_commands import OPERATIONS
from kernbench.mesh.programs.placement import Placement
from kernbench.mesh.programs.tensors import Tensor, disagreement
from kernbench.result.finding import Finding, FindingLog, Other, SourceLocation, rank_ranges
from kernbench.result.recording import Recording

# most other lines with stores of an output that a finding lists
_MOST_STORES = 4


def _stores(tensor: Tensor, recording: Recording) -> list[SourceLocation]:
    """The kernel's lines that stored the tensor, in order of first execution."""
    sites: dict[int, None] = {}
    end = tensor.address + max(prod(tensor.shape) * ITEMSIZE[tensor.dtype], 1)
    for stream in recording.streams:
        op, site, address = (stream.rows.column(name) for name in ("op", "site", "x"))
        hit = (op == OPERATIONS["store"].code) & (address >= tensor.address) & (address < end)
        sites.update(dict.fromkeys(map(int, site[hit])))
    return [recording.tables.sites[n] for n in sites]


def _location_and_others(
    tensor: Tensor, recording: Recording, where: SourceLocation
) -> tuple[SourceLocation, tuple[Other, ...]]:
    """Where a finding about an output is reported, and the other lines that store it."""
    first, *more = _stores(tensor, recording) or [where]
    return first, tuple(Other("another store of it", location) for location in more[:_MOST_STORES])


def unwritten(
    tensor: Tensor, placements: list[Placement], log: FindingLog, recording: Recording, where: SourceLocation
) -> None:
    """Findings for output elements never stored. Values of earlier launches count only if this launch reads the
    output.
    """
    missing: dict[int, tuple[int, tuple[int, ...]]] = {}
    for placement in placements:
        region = tensor.region(placement.number, placement.rank)
        marks = region.written if region.loaded else region.fresh
        if marks is not None and not marks.all():
            first = np.unravel_index(int(np.argmin(marks)), region.shape)
            missing[placement.rank] = (int((~marks).sum()), tuple(int(i) for i in first))
    if not missing:
        return
    rank, (count, index) = next(iter(missing.items()))
    total = sum(n for n, _ in missing.values())
    location, others = _location_and_others(tensor, recording, where)
    log.add(
        Finding(
            "output-unwritten",
            f"{total} elements of output '{tensor.name}' were never written: {count} of them on rank {rank}, the "
            f"first at {list(index)} of its part",
            location,
            others,
            "check the loops that store it: the last block, the last shard, ranks that return early",
            1,
            tuple(missing),
        ),
        tensor.name,
    )


def lost(
    tensor: Tensor, placements: list[Placement], log: FindingLog, recording: Recording, where: SourceLocation
) -> None:
    """A finding if PEs of a cube stored other values than its PE 0, whose memory is the rank's."""
    leaders = {p.rank: p for p in placements if p.leads}
    for placement in placements:
        region = tensor.regions.get(placement.number)
        if placement.leads or region is None or not region.stored:
            continue
        leader = leaders[placement.rank]
        kept, own = tensor.part(leader.number, leader.rank), tensor.part(placement.number, placement.rank)
        if disagreement(kept, own, tensor.dtype) is not None:
            location, others = _location_and_others(tensor, recording, where)
            log.add(
                Finding(
                    "output-disagreement",
                    f"PE {placement.pe} of cube {placement.cube} stored other values to '{tensor.name}' than PE 0, "
                    "whose memory is the rank's: they are lost",
                    location,
                    others,
                    "with rank_axis=1 let PE 0 store (if tl.program_id(0): return), or use tl.workspace",
                    1,
                    (placement.rank,),
                ),
                (tensor.name, "lost"),
            )


def disagreeing(
    tensor: Tensor, placements: list[Placement], log: FindingLog, recording: Recording, where: SourceLocation
) -> None:
    """A finding for copies of one output that differ beyond rounding."""
    parts = [(p.rank, tensor.part(p.number, p.rank)) for p in placements]
    rank0, first = parts[0]
    off = {rank: gap for rank, part in parts[1:] if (gap := disagreement(first, part, tensor.dtype)) is not None}
    if not off:
        return
    worst = max(off, key=lambda r: off[r][0])
    distance, index, count = off[worst]
    location, others = _location_and_others(tensor, recording, where)
    log.add(
        Finding(
            "output-disagreement",
            f"copies of output '{tensor.name}' differ: {count} elements between rank {rank0} and rank {worst}, by up "
            f"to {distance:.3g} at {list(index)} (unlike rank {rank0}: {rank_ranges(off)})",
            location,
            others,
            "every rank must merge every partial exactly once; look for a rank that misses or repeats one",
            1,
            tuple(off),
        ),
        tensor.name,
    )
