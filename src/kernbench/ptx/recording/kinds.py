"""Kinds of events: warp instructions that access memory, synchronise or use an asynchronous unit."""

from enum import IntEnum, unique


@unique
class Kind(IntEnum):
    """The kind of an event; `Events` says which columns apply."""

    # not recorded: instructions that only compute, and branches
    NONE = 0
    # per-lane accesses, from or to registers; generic addresses are resolved
    GLOBAL_LOAD = 1
    GLOBAL_STORE = 2
    GLOBAL_ATOMIC = 3
    GLOBAL_REDUCTION = 4
    SHARED_LOAD = 5
    SHARED_STORE = 6
    SHARED_ATOMIC = 7
    LOCAL_LOAD = 8
    LOCAL_STORE = 9
    # shared memory of another CTA of the cluster
    CLUSTER_LOAD = 10
    CLUSTER_STORE = 11
    CLUSTER_ATOMIC = 12
    # ldmatrix, stmatrix, and loads and stores of wmma fragments
    MATRIX_LOAD = 13
    MATRIX_STORE = 14
    # constant memory
    CONSTANT_LOAD = 16
    # hints: prefetch, applypriority, discard, and bulk prefetches to L2
    PREFETCH = 15
    # per-lane copies, global to shared
    ASYNC_COPY = 20
    ASYNC_COPY_COMMIT = 21
    ASYNC_COPY_WAIT = 22
    # arrive at the mbarrier when the lane's copies are done
    ASYNC_COPY_ARRIVE = 23
    # bulk copies, with or without a tensor map
    BULK_LOAD = 24
    BULK_STORE = 25
    BULK_REDUCE = 26
    BULK_COMMIT = 27
    BULK_WAIT = 28
    # between CTAs of a cluster: cp.async.bulk shared to shared, st.async, red.async
    BULK_CLUSTER = 29
    REMOTE_STORE = 30
    # further target CTAs of a multicast bulk load or tcgen05 commit: its sectors are counted in the first event
    BULK_MULTICAST = 31
    # matrix units: of a warp, of a warpgroup, and of Blackwell
    MMA = 40
    WGMMA = 41
    WGMMA_FENCE = 42
    WGMMA_COMMIT = 43
    WGMMA_WAIT = 44
    TENSOR_MMA = 45
    TENSOR_COPY = 46
    TENSOR_LOAD = 47
    TENSOR_STORE = 48
    TENSOR_WAIT = 49
    TENSOR_COMMIT = 50
    TENSOR_FENCE = 51
    TENSOR_ALLOCATE = 52
    TENSOR_FREE = 53
    TENSOR_SHIFT = 54
    # barriers
    BARRIER_ARRIVE = 61
    BARRIER_SYNC = 62
    CLUSTER_ARRIVE = 63
    CLUSTER_WAIT = 64
    MBARRIER_INIT = 65
    MBARRIER_ARRIVE = 66
    MBARRIER_EXPECT = 67
    MBARRIER_WAIT = 68
    MBARRIER_INVAL = 70
    # order
    FENCE = 80
    PROXY_FENCE = 81
    # other units
    SET_REGISTERS = 91
    GRID_DEPENDENCY = 92
    SLEEP = 93
    # anything else done by an asynchronous unit: multimem, tensormap.replace, clusterlaunchcontrol
    OTHER = 94
    # a division, reciprocal or root for which the machine code calls a subroutine, as a lane's operand needs it
    SLOW_PATH = 95
