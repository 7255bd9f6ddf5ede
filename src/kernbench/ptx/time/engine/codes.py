"""Constants shared by the compiled model and the code that prepares its tables."""

# ticks per cycle: GPU-wide rates are far above one byte a cycle, and time is an integer
TICK = 1 << 16
# later than any time
NEVER = 1 << 60
SUB_CORES = 4
# scoreboards of a warp
COUNTERS = 6
# kinds of asynchronous groups of a warp: cp.async, bulk stores, wgmma, tcgen05 products, accesses to tensor memory,
# reads of bulk stores; and how many groups of each kind are remembered
CP_GROUP, BULK_GROUP, WGMMA_GROUP, PRODUCT_GROUP, TENSOR_GROUP, READ_GROUP = range(6)
GROUP_KINDS, GROUPS = 6, 64

# actions of instructions
(
    PLAIN,
    VARIABLE,
    SHARED,
    LOAD,
    STORE,
    ATOMIC,
    REDUCTION,
    REMOTE_LOAD,
    REMOTE_STORE,
    CP_ASYNC,
    BULK_LOAD,
    BULK_STORE,
    MMA,
    WGMMA,
    BARRIER_SYNC,
    BARRIER_ARRIVE,
    ARRIVE,
    WAIT,
    COMMIT,
    WAIT_GROUP,
    FENCE,
    BRANCH,
    COPY_ARRIVE,
    CLUSTER_ARRIVE,
    CLUSTER_WAIT,
    BULK_SHARED,
    MULTICAST,
    NOTHING,
) = range(28)
# tcgen05: a product, copy or shift of the tensor core; a load or store of tensor memory; commit; wait
PRODUCT, TENSOR_ACCESS, TENSOR_COMMIT, TENSOR_WAIT = range(28, 32)
# nanosleep
SLEEP = 32

# pipes of a sub-core
HEAVY, LITE, ALU, XU, FP64, TENSOR, NO_PIPE = range(7)
# and further columns: until when the tensor core works on wgmma products, and the ticks that other instructions took
# from it
PRODUCTS, TAKEN = 7, 8
# the path to tensor memory
TENSOR_MEMORY = 9
PIPES = 10
# an instruction for either half of the FMA pipe
EITHER = 10

# servers of an SM: the stage shared by shared memory, L1 and shuffles (MIO); the port from L2; the path to L2; the bulk
# copy unit (TMA); CTA barriers; mbarriers; L1 tags; the network to the shared memory of other SMs in the cluster
MIO, PORT, STORES, TMA, BARRIERS, MBARRIERS, TAGS, NETWORK = range(8)
# the tcgen05 tensor core; the address of the last D, plus 1; the share of shared-memory time that operands take
PRODUCT_UNIT, LAST_TARGET, PASSES_SHARE = range(8, 11)
SM_SERVERS = 11
# fractions of `TICK` that generate evenly distributed sequences: by the golden section and by the square root of 2 from
# one access of a warp to the next; by two numbers of a plane sequence from one warp to the next
GOLDEN, ROOT = 40503, 27146
NEXT_WARP, NEXT_DRAW = 49472, 37345
# servers of the GPU
L2, L2_WRITES, HBM, ATOMICS, DISPATCH = range(5)
GPU_SERVERS = 5
# state of L2 and memory, in 16ths of a byte: dirty in L2, read and written so far; and of the current window
DIRTY, HAS_READ, HAS_WRITTEN, WINDOW_BEGAN, WINDOW_BUSY, BUSY_SHARE, WINDOW_WROTE, WRITE_SHARE = range(8)
MEMORY = 8
# window in ticks over which the load of memory is measured, and the value of full load
WINDOW, FULL = 1024 * TICK, 1024
PART = 16
# costs of memory per 16th of a byte have this many fractional bits
COST_SHIFT = 12

# constants, in ticks
(
    ISSUE,
    BRANCH_LOST,
    ADDRESS,
    QUEUE_DEPTH,
    LATENCY_L1,
    LATENCY_L2,
    LATENCY_HBM,
    LATENCY_ATOMIC,
    LATENCY_STORE,
    BARRIER,
    BARRIER_WARP,
    TRY_WAIT,
    WAKE,
    MBARRIER,
    BULK_ISSUE,
    BULK_EXTRA,
    TENSOR_TAIL,
    TENSOR_QUEUE,
    FENCE_COST,
    MEMBAR,
    CTA_INTERVAL,
    SLOT_REUSE,
    WARP_START,
    PER_SM,
    L2_CAPACITY,
    READ_COST,
    WRITE_COST,
    WRITE_MIXED,
    SUB_CORE_BYTE,
    LATENCY_LOADED,
    LATENCY_WRITING,
    TAKEN_BY_FMA,
    BESIDE_FMA,
    BESIDE_ALU,
    BESIDE_MUFU,
    REMOTE_LATENCY,
    ONE_WAY,
    MULTICAST_EXTRA,
    CLUSTER_BARRIER,
    NETWORK_BYTE,
    PRODUCT_TAIL,
    PRODUCT_CHAIN,
    TENSOR_LATENCY,
) = range(43)
CONSTANTS = 43
# other accesses keep at least a quarter of shared memory while operands of products are read
MOST_PASSES = 3 * TICK // 4

# columns of the instruction table
WHAT, PIPE, COST, LATENCY, STALL, WRITE, READ, WAITS, WIDTH, REASON, QUEUED, CLOSES, TOGETHER = range(13)
# columns of the event table.
# - `EXTRA`: the kind of a group; the duration of a sleep; the L2 time of an atomic; the stage time of a shared-memory
#   atomic that combines lanes of the same word.
# - `LATER` and `WIDER`: how much later loads of several lines are answered, and how much their answers are spread.
# - `E_TAGS`: the time of the tag lookups. `FURTHER`: the rank of the CTA they concern, relative to their own.
# - `E_THROUGH`: what memory reads and writes at once for a store. `E_MISSES`: how many of `TICK` accesses wait for
#   memory.
# - tcgen05: `EXTRA` is the time of the tensor core or of tensor memory, `STAGE` that of shared memory, `E_L2` the
#   number of participating SMs, `PHASE` the address of D.
E_WHAT, STAGE, E_PORT, E_L2, E_HBM, BYTES, LANES, SYNC, PHASE, EXTRA, LATER, WIDER, E_TAGS = range(13)
FURTHER, E_THROUGH, E_MISSES = 13, 14, 15
# columns of a warp: its state; its position in its path, and the path's end; its first event; when it may issue, when
# it issued last, when the fixed stall of that instruction ends, why it waits; the completion it is blocked on; when its
# last store is done, and its last one to shared memory; its CTA; what held it back when it was ready; ticks taken from
# its tensor core when it began to wait for products, or -1; `W_STEPS` and `W_DRAWS`: its positions in the evenly
# distributed sequences for answers and for misses. Then its scoreboards and their reasons, committed groups, and when
# the open group is done, of each kind
(
    W_STATE,
    W_AT,
    W_END,
    W_EVENTS,
    W_READY,
    W_ISSUED,
    W_FIXED,
    W_WHY,
    W_BLOCKED_ON,
    W_STORED,
    W_SHARED,
    W_CTA,
    W_HELD,
    W_TAKEN,
    W_STEPS,
    W_DRAWS,
) = range(16)
W_COUNTER = 16
W_COUNTER_WHY = W_COUNTER + COUNTERS
W_GROUPS = W_COUNTER_WHY + COUNTERS
W_OPEN = W_GROUPS + GROUP_KINDS
WARP_COLUMNS = W_OPEN + GROUP_KINDS
EMPTY, RUNS, BLOCKED = 0, 1, 2
# columns of a CTA slot; the last two: its cluster slot, and its rank in the cluster
C_FIRST, C_WARPS, C_WEIGHT, C_LEFT, C_STARTED, C_NUMBER, C_CLASS, C_ENDS, C_CLUSTER, C_RANK = range(10)
CTA_COLUMNS = 10
# columns of a cluster slot: running CTAs, and when the last of the ended ones ended
K_LEFT, K_ENDS = range(2)
CLUSTER_COLUMNS = 2
# counters of the model: the next cluster of the grid; spans written; when the last store is done; the first CTA that
# may be traced; the one that is traced (-1: none yet); its instructions noted so far
NEXT_CLUSTER, SPANS, LAST_STORE, FOLLOW_FROM, FOLLOWED, NOTED = range(6)
COUNTS = 6
# columns of the trace: the warp in its CTA, the instruction, when the warp's last one issued, when its fixed stall
# ended, when it was ready, why it was not ready before, what held it then, when it issued; what it started, and until
# when that works
N_WARP, N_OP, N_SINCE, N_FIXED, N_READY, N_WHY, N_HELD, N_ISSUED, N_BEGAN, N_UNTIL = range(10)
NOTE_COLUMNS = 10
