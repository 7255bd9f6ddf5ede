"""Stall reasons of warps."""

from enum import IntEnum


class Reason(IntEnum):
    """What a warp waited for between two of its instructions, named as in GPU profilers."""

    # its own issue slot, and the fixed stall of the instruction before
    ISSUED = 0
    FIXED = 1
    # a scoreboard: results of memory or of a unit of variable latency
    GLOBAL = 2
    SHARED = 3
    MATH = 4
    # the unit was busy
    PIPE = 5
    QUEUE = 6
    # ready, but another warp of the sub-core issued
    NOT_SELECTED = 7
    BARRIER = 8
    MBARRIER = 9
    # groups of cp.async, of bulk copies and of wgmma
    GROUP = 10
    TENSOR = 11
    BRANCH = 12
    FENCE = 13
    # instruction fetch
    FETCH = 14
    # nanosleep
    SLEEP = 15


# those for which instructions wait by themselves; results are waited for by the instruction that needs them
WAIT_BY_THEMSELVES = (Reason.BARRIER, Reason.MBARRIER, Reason.GROUP, Reason.FENCE, Reason.SLEEP)
