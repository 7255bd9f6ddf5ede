"""All microbenchmarks, in the order in which figures are fitted: what comes later builds on what came before."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from .case import Case
from .families import (
    arithmetic,
    bandwidth,
    barriers,
    clusters,
    contention,
    copies,
    fences,
    latency,
    launches,
    opcodes,
    overlap,
    patterns,
    scattered,
    shared_memory,
    tensor_cores,
)

FAMILIES: Mapping[str, tuple[Callable[[], Iterable[Case]], ...]] = {
    "arithmetic": (arithmetic.latencies, arithmetic.throughputs, arithmetic.branches, arithmetic.mixes),
    "opcodes": (opcodes.throughputs, opcodes.latencies, opcodes.pairs),
    "shared": (
        shared_memory.latency,
        shared_memory.conflicts,
        shared_memory.broadcasts,
        shared_memory.matrices,
        shared_memory.fences,
    ),
    "fences": (fences.by_warps, fences.chains, fences.copies),
    "barriers": (barriers.sync, barriers.named, barriers.hops, barriers.waits, barriers.rings, barriers.parked),
    "latency": (latency.chases, latency.l2_map, latency.atomics),
    "copies": (copies.latency, copies.issue, copies.remote),
    "clusters": (clusters.barrier, clusters.hops, clusters.multicast, clusters.bandwidth),
    "tensor": (tensor_cores.products, tensor_cores.warpgroups, tensor_cores.beside, tensor_cores.mma),
    "bandwidth": (
        bandwidth.l1,
        bandwidth.l2,
        bandwidth.hbm_reads,
        bandwidth.hbm_writes,
        bandwidth.hbm_cp_async,
        bandwidth.hbm_bulk,
    ),
    "patterns": (patterns.strides, patterns.spread_atomics, patterns.shared_atomics),
    "scattered": (
        scattered.beyond,
        scattered.inside,
        scattered.columns,
        scattered.shared_lines,
        scattered.l2_flying,
    ),
    "words": (scattered.words,),
    "misses": (bandwidth.hbm_widths, scattered.shared_misses),
    "mixes": (bandwidth.hbm_mixes,),
    "contention": (contention.words, contention.rows, contention.in_shared),
    "overlap": (overlap.clocks, overlap.attention, overlap.same_warpgroup),
    "launches": (launches.starts, launches.waves),
    # kernels that are launched one by one, not as cases
    "cold": (),
    "clock": (launches.streaming, tensor_cores.power),
}


def cases(families: Iterable[str] = FAMILIES) -> Iterator[Case]:
    """The cases of some families, in order."""
    for family in families:
        for benchmark in FAMILIES[family]:
            yield from benchmark()
