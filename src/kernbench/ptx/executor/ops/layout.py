"""Where the executor's state lies: records of instructions, and the words of warps, blocks and launches.

Compiled code reads all of it at fixed offsets, so that state is arrays only. Words have 64 bits.
"""

LANES = 32
EVERYBODY = (1 << LANES) - 1

# a record, in bytes: the address of the operation's code, an immediate, the number of its site, and its operands, as
# byte offsets into the registers of a warp
RECORD_BYTES = 112
CODE, IMMEDIATE, SITE, OPERANDS = 0, 8, 16, 24
MOST_OPERANDS = (RECORD_BYTES - OPERANDS) // 4
# in each record of an operation that has more of them
SOME_OPERANDS = 16

# words of a warp
(
    REGISTERS,
    ACTIVE,
    BLOCK,
    STATE,
    RESUME,
    PARTS,
    NUMBER,
    ALIVE,
    NOW,
    MET,
    KNOWN_FLOOR,
    KNOWN_AT,
    ELECTED,
    ELECTED_AT,
    COPIES,
    GROUPS,
    COPIES_AT,
    GROUPS_AT,
    LEFT,
    COMMITTED,
    STORED,
    STORES_BEGUN,
    STORES_DONE,
    STORE_LANES,
    PRODUCTS_BEGUN,
    PRODUCTS_DONE,
    WAITS_AT,
    LEFT_IN,
) = range(28)
# fragments of a warp that wait for their turn: pairs of a mask and a record
FIRST_PART = 28
MOST_PARTS = LANES
# behind them room for 32 addresses, and for what an operation holds
ADDRESSES = 96
WARP_WORDS = ADDRESSES + LANES + 32
# a warp waits at a barrier of the block, for the others of its warpgroup, for a phase of an mbarrier, or at a barrier
# of some warps
RUNS, WAITS, ENDED, MEETS, PARKED, COUNTED = range(6)
# warps of a warpgroup
GROUP_WARPS = 4

# words of a block
(
    SHARED,
    SHARED_STATES,
    SHARED_WRITES,
    SHARED_READS,
    SHARED_BYTES,
    FLOOR,
    SERIAL,
    LAUNCH,
    WARPS,
    WARPS_AT,
    CLOCKED,
    VECTORS_AT,
    NEXT_VECTOR,
    FIRST_VECTOR,
    AGENTS_AT,
    UNITED_AT,
    JOINED_AT,
    ROOM_AT,
    SWIZZLES_AT,
    MBARRIERS_AT,
    MBARRIER_NUMBERS_AT,
    MBARRIER_COUNT,
    HELD_AT,
    DONE_AT,
    SHOWS_INITIALISATION,
    NAMED_AT,
    EVENTS,
    MAPS_AT,
    MAP_COUNT,
    UNKNOWN_MAP,
    SHOWN_LAST,
    READ_LAST,
) = range(32)
BLOCK_WORDS = 32

# words of a launch
(
    LANE_COUNTS,
    WARP_COUNTS,
    SUSPECT,
    SUSPECT_SITE,
    ARRAYS,
    ARRAY_COUNT,
    ACCESSES,
    STATES,
    CONTENTS,
    LOG,
    LOGGED,
    FIRST_SERIAL,
    EPOCH,
    DIRTY,
    ENTRY,
    THREADS,
) = range(16)
LAUNCH_WORDS = 16

# words of what a thread is to run: blocks from FIRST to LAST - 1, of which it says where it stopped; the extents of the
# grid, multiprocessors, the lanes of each warp, special registers, the states of shared memory at the beginning of a
# block, and how many blocks of the program a warp may run
FIRST, LAST, STOPPED, EXTENT_X, EXTENT_Y, PROCESSORS, ALIVE_AT, SPECIALS_AT, SPECIAL_COUNT, STATES_AT, BUDGET_OF = (
    range(11)
)
# the offsets of registers that nobody has set when a block begins, and what they hold then
UNSET_AT, UNSET_COUNT = 11, 12
UNSET = 0x7FA5C3E1
TASK_WORDS = 13

# words of an array in the launch's table: its addresses, flags, and its shadow (`ops.shadow`)
LOW, HIGH, FLAGS, ROW_WRITES, ROW_READS, ROW_WORDS, ROW_SAVED, WORD_WRITES, WORD_READS, WORD_UPDATES, FIRST_ROW = range(
    11
)
ARRAY_WORDS = 12
DEFINED, TRACKED = 1, 2

# words of an access in the launch's table: the global addresses it is meant for, whether others are faults, the array
# it used last, and the offsets in shared memory that it is meant for
MEANT_LOW, MEANT_HIGH, IS_MEANT, LAST_ARRAY, SHARED_LOW, SHARED_HIGH = range(6)
ACCESS_WORDS = 6
# bits of the second: whether others are faults, and whether it is a load through the non-coherent cache
MEANT, NONCOHERENT = 1, 2

# why a run was given up
(
    NO_SUSPECT,
    BOUNDS,
    UNWRITTEN,
    RACE,
    MISALIGNED,
    DIVERGED,
    BARRIER,
    BUDGET,
    DIVISION,
    SPACE,
    COPY,
    ROOM,
) = range(12)
