"""What the end of a launch shows about its outputs: elements nobody wrote, and copies that do not agree."""

import numpy as np

from kernbench.mesh.placement import Placement
from kernbench.mesh.tensors import Tensor, disagreement
from kernbench.result.finding import Finding, FindingLog, Place, rank_ranges


def unwritten(tensor: Tensor, placements: list[Placement], log: FindingLog, where: Place) -> None:
    """Findings for output elements no store reached. What an earlier launch left counts only if this one reads it."""
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
    log.add(
        Finding(
            "output-unwritten",
            f"{total} elements of output '{tensor.name}' were never written: {count} of them on rank {rank}, the "
            f"first at {list(index)} of its part",
            where,
            (),
            "check the loops that store it: the last block, the last shard, ranks that return early",
            1,
            tuple(missing),
        ),
        tensor.name,
    )


def lost(tensor: Tensor, placements: list[Placement], log: FindingLog, where: Place) -> None:
    """A finding for PEs of a cube that stored something else than its PE 0, whose memory is the rank's."""
    leaders = {p.rank: p for p in placements if p.leads}
    for placement in placements:
        region = tensor.regions.get(placement.number)
        if placement.leads or region is None or not region.stored:
            continue
        leader = leaders[placement.rank]
        kept, own = tensor.part(leader.number, leader.rank), tensor.part(placement.number, placement.rank)
        if disagreement(kept, own, tensor.dtype) is not None:
            log.add(
                Finding(
                    "output-disagreement",
                    f"PE {placement.pe} of cube {placement.cube} stored other values to '{tensor.name}' than PE 0, "
                    "whose memory is the rank's: they are lost",
                    where,
                    (),
                    "with rank_axis=1 let PE 0 store (if tl.program_id(0): return), or use tl.workspace",
                    1,
                    (placement.rank,),
                ),
                (tensor.name, "lost"),
            )


def disagreeing(tensor: Tensor, placements: list[Placement], log: FindingLog, where: Place) -> None:
    """A finding for copies of one output that differ beyond rounding."""
    parts = [(p.rank, tensor.part(p.number, p.rank)) for p in placements]
    rank0, first = parts[0]
    off = {rank: gap for rank, part in parts[1:] if (gap := disagreement(first, part, tensor.dtype)) is not None}
    if not off:
        return
    worst = max(off, key=lambda r: off[r][0])
    distance, index, count = off[worst]
    log.add(
        Finding(
            "output-disagreement",
            f"copies of output '{tensor.name}' differ: {count} elements between rank {rank0} and rank {worst}, by up "
            f"to {distance:.3g} at {list(index)} (unlike rank {rank0}: {rank_ranges(off)})",
            where,
            (),
            "every rank must merge every partial exactly once; look for a rank that misses or repeats one",
            1,
            tuple(off),
        ),
        tensor.name,
    )
