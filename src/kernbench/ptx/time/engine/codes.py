"""Numbers that the compiled model and what prepares its tables agree on."""

# ticks of a cycle: rates of the whole GPU are far more than a byte a cycle, and time is a whole number
TICK = 1 << 16
# later than anything
NEVER = 1 << 60
SUB_CORES = 4
# scoreboard counters of a warp
COUNTERS = 6
# groups of asynchronous work of a warp: cp.async, bulk stores, wgmma, products of tcgen05, accesses to tensor memory,
# what bulk stores read; and how many of each are remembered
CP_GROUP, BULK_GROUP, WGMMA_GROUP, PRODUCT_GROUP, TENSOR_GROUP, READ_GROUP = range(6)
GROUP_KINDS, GROUPS = 6, 64

# what an instruction does
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
# of tcgen05: a product, a copy or a shift of the tensor core; a load or store of tensor memory; commits; waits
PRODUCT, TENSOR_ACCESS, TENSOR_COMMIT, TENSOR_WAIT = range(28, 32)
# a warp sleeps
SLEEP = 32

# pipes of a sub-core
HEAVY, LITE, ALU, XU, FP64, TENSOR, NO_PIPE = range(7)
# and beside them: until when the tensor core works on products of warpgroups, and ticks that other instructions took of
# it
PRODUCTS, TAKEN = 7, 8
# the way to tensor memory
TENSOR_MEMORY = 9
PIPES = 10
# an instruction that either half of the FMA pipe takes
EITHER = 10

# servers of an SM: the stage that shared memory, L1 and shuffles go through; what comes from L2; what goes there; the
# unit of bulk copies; that of barriers; that of mbarriers; what looks for lines in L1; what other SMs of a cluster read
# and write of its shared memory
MIO, PORT, STORES, TMA, BARRIERS, MBARRIERS, TAGS, NETWORK = range(8)
# the tensor core of tcgen05; the address of the last D, plus 1; the share of shared memory's time that operands take
PRODUCT_UNIT, LAST_TARGET, PASSES_SHARE = range(8, 11)
SM_SERVERS = 11
# parts of a whole, of `TICK`, whose multiples lie evenly: by the golden section, and by the root of 2, from one access
# of a warp to the next; and by two parts of a plane, from one warp to the next
GOLDEN, ROOT = 40503, 27146
NEXT_WARP, NEXT_DRAW = 49472, 37345
# and of the GPU
L2, L2_WRITES, HBM, ATOMICS, DISPATCH = range(5)
GPU_SERVERS = 5
# what is known of L2 and memory, in 16ths of a byte: dirty in L2, read and written so far
DIRTY, HAS_READ, HAS_WRITTEN, WINDOW_BEGAN, WINDOW_BUSY, BUSY_SHARE, WINDOW_WROTE, WRITE_SHARE = range(8)
MEMORY = 8
# ticks over which the load of memory is taken, and what full load is
WINDOW, FULL = 1024 * TICK, 1024
PART = 16
# ticks of memory for such a part are kept with so many further bits
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
# other accesses to shared memory keep a quarter of it at least while operands of products pass
MOST_PASSES = 3 * TICK // 4

# columns of the table of instructions
WHAT, PIPE, COST, LATENCY, STALL, WRITE, READ, WAITS, WIDTH, REASON, QUEUED, CLOSES, TOGETHER = range(13)
# columns of the events; `EXTRA` is the kind of a group, how long a warp sleeps, what an atomic takes of L2, or what
# one of shared memory takes of the stage where lanes that want the same word are added up first; `LATER` and `WIDER`
# are by how much loads of several lines are answered later, and how far their answers lie apart; `E_TAGS` what looking
# for their lines takes; `FURTHER` how many ranks further in the cluster the CTA is that they concern; `E_THROUGH` what
# memory reads and writes at once for a store; `E_MISSES` how many of `TICK` accesses wait for memory. Of tcgen05:
# `EXTRA` is what it takes of the tensor core or of tensor memory, `STAGE` of shared memory, `E_L2` how many SMs take
# part, `PHASE` the address of D
E_WHAT, STAGE, E_PORT, E_L2, E_HBM, BYTES, LANES, SYNC, PHASE, EXTRA, LATER, WIDER, E_TAGS = range(13)
FURTHER, E_THROUGH, E_MISSES = 13, 14, 15
# columns of a warp: whether it runs; where it is in its path, and the path's end; its first event; when it may issue,
# when it issued last, until when the stall of that instruction lasts, why it waits; the completion it is blocked on;
# when its last store is done, and its last one to shared memory; its CTA; what held it back when it was ready; what
# other instructions had taken of its tensor core when it began to wait for products, or -1; then its counters and their
# reasons, groups that were committed and when the open one is done, of each kind. `W_STEPS` says where the answer to a
# warp's next load lies in the spread of answers, `W_DRAWS` where its next access lies among those that hit and miss
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
# columns of a CTA's slot; the last two: the slot of its cluster, and its rank there
C_FIRST, C_WARPS, C_WEIGHT, C_LEFT, C_STARTED, C_NUMBER, C_CLASS, C_ENDS, C_CLUSTER, C_RANK = range(10)
CTA_COLUMNS = 10
# columns of a cluster's slot: CTAs of it that run, and when the last of those that ended did
K_LEFT, K_ENDS = range(2)
CLUSTER_COLUMNS = 2
# rows of counts that the model keeps: the next cluster of the grid, spans written, when the
# last store is done; the first CTA that may be followed instruction by instruction, the one that is (-1: none yet), and
# instructions of it that were noted
NEXT_CLUSTER, SPANS, LAST_STORE, FOLLOW_FROM, FOLLOWED, NOTED = range(6)
COUNTS = 6
# columns of what is noted: the warp in its CTA, the instruction, when its last one issued, until when that stalled,
# when it was ready, why it was not before, what held it then, when it issued; what it began, and until when that works
N_WARP, N_OP, N_SINCE, N_FIXED, N_READY, N_WHY, N_HELD, N_ISSUED, N_BEGAN, N_UNTIL = range(10)
NOTE_COLUMNS = 10
