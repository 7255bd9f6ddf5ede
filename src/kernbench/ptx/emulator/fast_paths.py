"""The off-switch: which fast paths a launch may take.

A fast path does the same as plain code beside it, sooner, for a frequent case. Every one asks here whether it may be
taken: `batch.launch.fast` has a field for each. With all of them off, the plain code does everything: the same outputs,
findings, counts and records, later. Tests run launches both ways; so a fault that shows one way only is in a fast path,
or in the plain code that it replaces, and the name of the field says in which.

Caches of what the same code has computed before are no fast paths.
"""

import os
from dataclasses import dataclass, fields

from kernbench.common.errors import MisuseError, unknown

# the environment variable with the setting
VARIABLE = "KERNBENCH_FAST_PATHS"
EVERY, NO = "all", "none"


@dataclass(frozen=True, slots=True)
class FastPaths:
    """A field for each fast path, True where it may be taken."""

    # a launch in which nothing is suspect runs one warp at a time, in compiled code
    executor: bool = True
    # consecutive arithmetic steps, loads and exchanges are one call of machine code: runs, tapes, chains
    fused_steps: bool = True
    # a run of warps works on its registers in place, idle warps and lanes included, and not on copies of its own
    runs_of_warps: bool = True
    # undefined values are tracked only from the first load on that returns one
    late_tracking: bool = True
    # loads of words without faults, eight lanes at a time
    word_loads: bool = True
    # ldmatrix of rows without faults, all rows of all warps in one loop
    matrix_rows: bool = True
    # cp.async reads what all lanes copy in one loop, if there is no fault
    taken_copies: bool = True
    # and writes it in one loop
    delivered_copies: bool = True
    # cp.async.bulk.tensor begins the boxes of all lanes together, if there is no fault and the maps are equal
    boxes_together: bool = True
    # rows of boxes without faults are moved as such, and not piece by piece
    whole_rows: bool = True
    # a box that several lanes of a warp store is stored once
    repeated_boxes: bool = True
    # products on the same accumulators are computed together: consecutive wgmma or tcgen05.mma
    products_together: bool = True
    # tiles of 16-bit elements are gathered in one loop, for all operations and CTAs
    half_tiles: bool = True
    # tcgen05.mma with equal operands: they are decoded and checked once for all CTAs
    equal_products: bool = True
    # accesses to tensor memory without faults are entered in one loop
    tensor_entries: bool = True
    # tcgen05.alloc of several CTAs, if all are legal
    allocations_together: bool = True
    # tcgen05 by one lane of each warp: lanes need not take turns
    single_lanes: bool = True
    # mbarrier.init of one new barrier in each CTA, in one loop
    new_barriers: bool = True
    # an mbarrier that every lane may use is not looked at again
    usable_barriers: bool = True
    # an arrival on an mbarrier passes on the clocks of warps only, if no lane knows more
    warp_arrivals: bool = True
    # without checks: a wait is not repeated before its barrier has changed
    unchanged_waits: bool = True
    # warp operations that all lanes of all warps reach at once need not gather them
    gathered_warps: bool = True
    # whole warps that meet advance their clocks in one loop
    whole_warp_clocks: bool = True
    # what single lanes know is held in rows of clocks as long as it is about their own CTA
    clock_rows: bool = True
    # an access before the least entry of a warp's clock is ordered, whoever made it
    clock_floors: bool = True
    # four words whose accesses agree share a line of shadow cells
    shared_lines: bool = True
    # an access inside the array or variable that all its addresses are meant for needs no look at each of them
    meant_bounds: bool = True
    # tensormap.replace in maps in shared memory that are valid already, in one loop
    valid_maps: bool = True
    # independent blocks run in several processes
    processes: bool = True


NAMES = tuple(field.name for field in fields(FastPaths))
ALL = FastPaths()
NONE = FastPaths(**dict.fromkeys(NAMES, False))


def fast_paths(asked: str | None = None) -> FastPaths:
    """The fast paths of a setting, by default that of the environment: "all", "none", some names, or all -but -these.

    Names are separated by commas or blanks.
    """
    what, asked = (VARIABLE, os.environ.get(VARIABLE, EVERY)) if asked is None else ("fast paths", asked)
    words = asked.replace(",", " ").split() or [EVERY]
    if words == [NO]:
        return NONE
    allowed = set(NAMES) if words[0] == EVERY or words[0].startswith("-") else set[str]()
    for word in words[1:] if words[0] == EVERY else words:
        name = word.removeprefix("-")
        if name not in NAMES:
            raise MisuseError(f"{what}={asked!r}: {unknown('fast path', name, (EVERY, NO, *NAMES))}")
        if word.startswith("-"):
            allowed.discard(name)
        else:
            allowed.add(name)
    return FastPaths(**{name: name in allowed for name in NAMES})
