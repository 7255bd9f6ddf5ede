"""The tables of a GPU's file, each a frozen dataclass: parts of an SM, the memory hierarchy, launches.

Cycles are cycles of the SM clock. An interval is the time between two instructions of a sub-core on a pipe; a latency
is the time from an instruction to one that depends on its result.
"""

from dataclasses import dataclass
from typing import Annotated

from kernbench.machine.schema import Table
from kernbench.ptx.machine.figures import (
    Figure,
    count,
    cycles,
    gigabytes,
    megahertz,
    rate,
    share,
    size,
    time_ns,
)


@dataclass(frozen=True)
class Chip(Table):
    """How many SMs there are, and how they are grouped."""

    sms: Annotated[Figure, count("SMs", "SMs that programs can use", 4096)]
    gpcs: Annotated[Figure, count("GPCs", "groups of SMs; a cluster stays inside one", 64)]
    cluster: Annotated[Figure, count("CTAs", "CTAs in the largest cluster; 1: no clusters", 64)]
    l2_halves: Annotated[Figure, count("halves", "parts of the L2, each nearer to some SMs", 8)]


@dataclass(frozen=True)
class Clock(Table):
    """Frequencies of the SM clock, which falls under load."""

    most: Annotated[Figure, megahertz("the highest clock, which light work gets")]
    streaming: Annotated[Figure, megahertz("while all SMs read HBM as fast as they can")]
    products: Annotated[Figure, megahertz("while a kernel multiplies matrices on tensor cores, if only on one SM")]
    tensor: Annotated[Figure, megahertz("while all SMs multiply random bf16 matrices as fast as they can")]
    settled: Annotated[Figure, megahertz("that this falls to in the end, to stay inside the power the GPU may take")]
    settles: Annotated[Figure, time_ns("after which two thirds of that fall are over; 0: not known, and no fall")]


@dataclass(frozen=True)
class Sm(Table):
    """Resources of an SM."""

    sub_cores: Annotated[Figure, count("sub-cores", "schedulers; a warp's number modulo this is its own", 16)]
    warps: Annotated[Figure, count("warps", "resident warps", 256)]
    ctas: Annotated[Figure, count("CTAs", "resident CTAs", 256)]
    registers: Annotated[Figure, count("registers", "32-bit registers")]
    register_unit: Annotated[Figure, count("registers", "registers of a warp are a multiple of this", 4096)]
    shared: Annotated[Figure, size("shared memory of all resident CTAs")]
    shared_cta: Annotated[Figure, size("the most shared memory of one CTA")]
    shared_reserved: Annotated[Figure, size("shared memory taken by each CTA beyond what it asks for")]
    shared_unit: Annotated[Figure, size("shared memory of a CTA is a multiple of this")]
    l1: Annotated[Figure, size("L1 and shared memory together")]


@dataclass(frozen=True)
class Issue(Table):
    """How a sub-core issues instructions."""

    interval: Annotated[Figure, cycles("between two instructions of a sub-core")]
    branch_back: Annotated[Figure, cycles("lost at a branch that is taken, beyond the stall its code asks for")]
    register_banks: Annotated[Figure, count("banks", "register banks of a sub-core, each with one read port", 16)]
    instruction_cache: Annotated[Figure, size("code that loops without fetching it again")]


@dataclass(frozen=True)
class Pipe(Table):
    """An execution pipe of a sub-core."""

    latency: Annotated[Figure, cycles("from an instruction to one that needs its result")]
    interval: Annotated[Figure, cycles("between two instructions of a sub-core")]


@dataclass(frozen=True)
class Pipes(Table):
    """Execution pipes, by the instructions they execute."""

    fma: Pipe
    integer: Pipe
    multiply: Pipe
    wide: Pipe
    minmax: Pipe
    half2: Pipe
    double: Pipe
    convert: Pipe
    mufu: Pipe
    shuffle: Pipe


@dataclass(frozen=True)
class Shared(Table):
    """Shared memory."""

    latency: Annotated[Figure, cycles("of a load without bank conflicts")]
    conflict: Annotated[Figure, cycles("more for each further word of one bank that a warp reads")]
    bytes_per_cycle: Annotated[Figure, rate("bytes/cycle", "of an SM, loads and stores together")]
    sub_core_bytes_per_cycle: Annotated[
        Figure, rate("bytes/cycle", "of a sub-core, between it and shared memory or L1")
    ]
    banks: Annotated[Figure, count("banks", "banks of 4 bytes", 256)]
    ldmatrix: Annotated[Figure, cycles("between two ldmatrix.x4 of an SM")]
    ldmatrix_latency: Annotated[Figure, cycles("of an ldmatrix.x4")]
    stmatrix: Annotated[Figure, cycles("between two stmatrix.x4 of an SM")]
    queue: Annotated[Figure, count("instructions", "memory instructions a sub-core has queued before it stalls", 1024)]
    address_interval: Annotated[Figure, cycles("between two memory instructions of a sub-core")]


@dataclass(frozen=True)
class Barriers(Table):
    """Barriers and fences of a CTA."""

    sync: Annotated[Figure, cycles("bar.sync of one warp, from arrival to going on")]
    sync_warp: Annotated[Figure, cycles("more for each further warp of a bar.sync")]
    named_hop: Annotated[Figure, cycles("from bar.arrive in one warp to the wake of another")]
    arrive: Annotated[Figure, cycles("issue of an mbarrier arrive")]
    try_wait: Annotated[Figure, cycles("an mbarrier try_wait that succeeds")]
    wake: Annotated[Figure, cycles("from an mbarrier arrive to the wake of another warp")]
    interval: Annotated[Figure, cycles("between two mbarrier operations of an SM")]
    parked: Annotated[Figure, time_ns("how long a try_wait without a hint waits before it fails")]
    proxy_fence: Annotated[Figure, cycles("fence.proxy.async with no stores before it")]


@dataclass(frozen=True)
class L1(Table):
    """The L1 cache."""

    latency: Annotated[Figure, cycles("of a load that hits")]
    bytes_per_cycle: Annotated[Figure, rate("bytes/cycle", "of an SM")]
    line: Annotated[Figure, size("a line")]
    sector: Annotated[Figure, size("the part of a line that is fetched")]
    gone: Annotated[Figure, rate("times", "its size to touch until nothing is left of what was touched before", 64)]


@dataclass(frozen=True)
class L2(Table):
    """The L2 cache, shared by all SMs."""

    capacity: Annotated[Figure, size("all of it")]
    latency: Annotated[Figure, cycles("of a load that hits, averaged over near and far")]
    spread: Annotated[Figure, cycles("between the latest and the earliest answer to loads that hit")]
    far: Annotated[Figure, cycles("between a hit in the far half and one in the near half")]
    bytes_per_cycle: Annotated[Figure, rate("bytes/cycle", "of all SMs together, from a footprint that fits")]
    lines_per_cycle: Annotated[Figure, rate("lines/cycle", "lines of which all SMs together load a part")]
    sm_bytes_per_cycle: Annotated[Figure, rate("bytes/cycle", "of one SM")]
    merged: Annotated[Figure, count("CTAs", "neighbours whose loads of one line at one time are one load of L2", 64)]
    write_bytes_per_cycle: Annotated[Figure, rate("bytes/cycle", "of all SMs together, stored to lines it holds")]
    sm_write_bytes_per_cycle: Annotated[Figure, rate("bytes/cycle", "of one SM, stored")]
    store_sector: Annotated[Figure, cycles("of a sector of which a part is stored, of all SMs together")]
    store_line: Annotated[Figure, cycles("more for each line of such a store")]
    turnover: Annotated[Figure, size("what must come until all but a third of what it held has left")]
    dirty: Annotated[Figure, share("of that that must be written back before a kernel's data can come")]
    atomic_interval: Annotated[Figure, cycles("between two additions of integers to one word, of all SMs")]
    atomic_float: Annotated[Figure, cycles("between two additions of f32 to one word, of all SMs")]
    atomic_sector: Annotated[Figure, cycles("of a sector that a reduction changes, of all SMs together")]
    atomic_result: Annotated[Figure, cycles("of a sector that an atomic changes whose result is used")]
    atomic_missed: Annotated[Figure, cycles("of a sector that an atomic changes and L2 does not hold")]
    atomic_lines: Annotated[Figure, rate("lines", "neighbouring lines whose atomics are done one after the other")]
    atomic_units: Annotated[Figure, rate("units", "that do atomics at once, if lines are many")]
    atomic_latency: Annotated[Figure, cycles("of an atomic whose result is used")]


@dataclass(frozen=True)
class Hbm(Table):
    """Device memory."""

    capacity: Annotated[Figure, size("all of it", 2**44)]
    bandwidth: Annotated[Figure, gigabytes("by the maker's data sheet")]
    read_share: Annotated[Figure, share("of the bandwidth that reading reaches")]
    write_share: Annotated[Figure, share("of the bandwidth that writing reaches")]
    copy_share: Annotated[Figure, share("of the bandwidth that copying reaches, bytes read and written")]
    latency: Annotated[Figure, cycles("of a load that misses L2, nothing else under way")]
    loaded: Annotated[Figure, cycles("more for a load that misses L2 while all of the bandwidth is used")]
    writing: Annotated[Figure, cycles("more for a load that misses L2, by the share of time in which memory writes")]
    spread: Annotated[Figure, cycles("between the latest and the earliest answer to loads that miss L2")]
    granule: Annotated[Figure, size("what is read at least")]
    scattered: Annotated[Figure, share("of the read rate that is left where no two granules are of one line")]
    rewritten: Annotated[
        Figure, share("of the rate of reading and writing that is left where sectors are stored in part")
    ]
    in_flight: Annotated[Figure, size("bytes an SM must have under way for nine tenths of the read rate")]


@dataclass(frozen=True)
class Copies(Table):
    """Asynchronous copies to shared memory: cp.async, and bulk and tensor copies (TMA)."""

    cp_async: Annotated[Figure, cycles("between two cp.async of 16 bytes a lane, of a sub-core")]
    bulk_extra: Annotated[Figure, cycles("more for a small bulk copy than for a load of the same bytes")]
    bulk_issue: Annotated[Figure, cycles("between two bulk copies of one thread")]
    bulk_bytes_per_cycle: Annotated[Figure, rate("bytes/cycle", "of one SM, from L2")]
    bulk_in_flight: Annotated[Figure, size("bytes of an SM under way at most")]


@dataclass(frozen=True)
class Tensor(Table):
    """The tensor cores of an SM; 0 for instructions that a GPU lacks."""

    wgmma: Annotated[Figure, rate("flop/cycle", "of an SM by wgmma, bf16")]
    wgmma_tail: Annotated[Figure, cycles("from the last cycle of a wgmma to its wait's return")]
    wgmma_issue: Annotated[Figure, cycles("issue of a wgmma")]
    wgmma_queue: Annotated[Figure, count("instructions", "wgmma queued in an SM before the next one stalls", 1024)]
    mma: Annotated[Figure, rate("flop/cycle", "of an SM by mma.sync, bf16")]
    mma_latency: Annotated[Figure, cycles("of a mma.sync.m16n8k16")]
    beside_fma: Annotated[Figure, share("of the rate of FP32 instructions that is left beside wgmma")]
    beside_minmax: Annotated[Figure, share("of the rate of integer and minimum instructions that is left beside wgmma")]
    beside_mufu: Annotated[Figure, share("of the rate of MUFU instructions that is left beside wgmma")]
    taken_by_fma: Annotated[Figure, cycles("of a tensor core that an FP32 instruction beside wgmma takes")]
    tcgen05: Annotated[Figure, rate("flop/cycle", "of an SM by tcgen05.mma, f16 or bf16")]
    tcgen05_tail: Annotated[Figure, cycles("from the last cycle of a tcgen05.mma to its commit's arrival")]
    tcgen05_chain: Annotated[Figure, cycles("from a tcgen05.mma to the next one that adds to the same D, at least")]
    tcgen05_copy: Annotated[Figure, rate("bytes/cycle", "of an SM by tcgen05.cp")]
    memory_load: Annotated[Figure, rate("bytes/cycle", "of a sub-core by tcgen05.ld, out of tensor memory")]
    memory_store: Annotated[Figure, rate("bytes/cycle", "of a sub-core by tcgen05.st, into tensor memory")]
    memory_latency: Annotated[Figure, cycles("of a tcgen05.ld, beside what its bytes take")]


@dataclass(frozen=True)
class Cluster(Table):
    """Distributed shared memory: access to other CTAs of a cluster."""

    latency: Annotated[Figure, cycles("of a load from another SM's shared memory")]
    one_way: Annotated[Figure, cycles("from a store or an arrival to its effect in another SM")]
    multicast: Annotated[Figure, cycles("more for a bulk copy to several CTAs")]
    barrier: Annotated[Figure, cycles("from the last arrival at a cluster's barrier to going on")]
    bytes_per_cycle: Annotated[
        Figure, rate("bytes/cycle", "that an SM's shared memory gives to, or takes from, other SMs")
    ]


@dataclass(frozen=True)
class Launch(Table):
    """Costs of launching kernels and starting CTAs."""

    gap: Annotated[Figure, time_ns("from one empty kernel of a stream to the next")]
    graph_gap: Annotated[Figure, time_ns("from one empty kernel of a graph to the next")]
    dependent_gap: Annotated[Figure, time_ns("from one empty kernel to the next that is begun before its end")]
    empty: Annotated[Figure, time_ns("an empty kernel between two events")]
    cta: Annotated[Figure, time_ns("between the starts of two CTAs of a grid, all SMs together")]
    first: Annotated[
        Figure, cycles("until the first CTAs run at full speed, code and tables of pages not in any cache")
    ]
    slot_reuse: Annotated[Figure, cycles("from the end of a CTA to the first instruction of the next in its place")]
