"""LaunchTime: what the model says of one launch: its time, what bounded it, and what warps waited for."""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.time.chip.occupancy import Occupancy
from kernbench.ptx.time.engine.reasons import Reason

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
# what is busy for this share of the time bounds it
MOSTLY = 0.6


class Unit(IntEnum):
    """What can be busy; rates of the whole GPU come last."""

    ISSUE = 0
    FMA = 1
    ALU = 2
    MUFU = 3
    DOUBLE = 4
    LSU = 5
    SHARED = 6
    TENSOR = 7
    L1 = 8
    PORT = 9
    TMA = 10
    L2 = 11
    HBM = 12
    # of CTAs to each other, one after the other, through L2
    HANDOVERS = 13


@dataclass(frozen=True)
class CtaSpans:
    """CTAs that were simulated: which one, on which SM group and slot, from which cycle to which.

    `stands_for` says of how many SMs an SM group's CTAs are the picture.
    """

    cta: Ints
    group: Ints
    slot: Ints
    start: Floats
    end: Floats
    stands_for: Ints


@dataclass(frozen=True)
class Traffic:
    """Bytes of the whole launch by level: asked of L1 by warps, of L2 by SMs, read from and written to HBM; and bytes
    of shared memory with the passes over its banks they took, and those they would take without conflicts.
    """

    l1: int = 0
    l2: int = 0
    hbm_read: int = 0
    hbm_written: int = 0
    shared: int = 0
    wavefronts: int = 0
    least_wavefronts: int = 0


@dataclass(frozen=True)
class Stalls:
    """Warp cycles by op of the streams' table (rows) and reason (columns), of all SMs; and how often each op issued."""

    cycles: Floats
    issued: Ints

    def by_reason(self) -> dict[Reason, float]:
        """All ops together."""
        return {reason: float(self.cycles[:, reason].sum()) for reason in Reason}


@dataclass(frozen=True)
class Followed:
    """One CTA instruction by instruction, in the order of issue: the warp in its CTA, the op, why the warp was not
    ready before and what held it when it was; what it began that works beside the warp (a code of the model). Cycles:
    when the warp's last instruction issued, until when that stalled, when it was ready, when it issued, until when what
    it began works.
    """

    cta: int
    kind: int
    warp: Ints
    op: Ints
    why: Ints
    held: Ints
    began: Ints
    since: Floats
    fixed: Floats
    ready: Floats
    issued: Floats
    until: Floats


@dataclass(frozen=True)
class LaunchTime:
    """The time of one launch.

    `cycles` are from the first CTA's start to the last one's end, at `clock_mhz`; `overhead_ns` is what a launch takes
    beside them, and `seconds` is both. `busy` is the share of the cycles each unit worked, of the SM that ended last or
    of the GPU; `bound` names the busiest. `floor_seconds` are lower bounds by unit: no model may be below them.
    """

    machine: str
    cycles: float
    clock_mhz: float
    overhead_ns: float
    occupancy: Occupancy
    busy: dict[Unit, float]
    floors: dict[Unit, float]
    traffic: Traffic
    stalls: Stalls
    spans: CtaSpans
    # "SASS of ptxas 13.0.88" or something that begins with "expansion of PTX", and the share of steps joined
    source: str
    joined: float
    # warp instructions issued by the whole launch, and how many of them were simulated
    instructions: int
    simulated: int
    # "not validated" for GPUs whose times nobody held to measurements
    predictions: str
    notes: tuple[str, ...] = field(default=())
    # the CTA that was followed
    followed: Followed | None = None
    # of the cycles those of a start with nothing in any cache, which a launch right behind another does not have, and
    # the gap to the launch before by how it follows it
    cold_cycles: float = 0.0
    # cycles that it takes to begin all CTAs, one after the other
    dispatch_cycles: float = 0.0
    gaps_ns: dict[str, float] = field(default_factory=dict)
    # cycles of a CTA before it waits for the launch before, and of the last ones after they let the next one begin
    before_wait: float = 0.0
    after_trigger: float = 0.0

    @property
    def seconds(self) -> float:
        """From the launch to its end."""
        return self.cycles / (self.clock_mhz * 1e6) + self.overhead_ns * 1e-9

    @property
    def launch_seconds(self) -> float:
        """What the launch takes beside the work of its CTAs: around it, and until the first CTAs run at full speed."""
        return self.overhead_ns * 1e-9 + min(self.cold_cycles, self.cycles) / (self.clock_mhz * 1e6)

    @property
    def tail_cycles(self) -> float:
        """Cycles that SMs had nothing left to do while others worked, on average over all that had work; what stores
        take to arrive after the last CTA has ended is none of them.
        """
        spans = self.spans
        if not len(spans.cta):
            return 0.0
        groups, inverse = np.unique(spans.group, return_inverse=True)
        ends = np.zeros(len(groups))
        np.maximum.at(ends, inverse, spans.end)
        weights = np.zeros(len(groups))
        weights[inverse] = spans.stands_for
        return float(((ends.max() - ends) * weights).sum() / weights.sum())

    @property
    def bound(self) -> Unit | None:
        """The busiest unit where one is busy for most of the time; None where latencies bound it."""
        unit = max(self.busy, key=lambda one: (self.busy[one], -one))
        return unit if self.busy[unit] >= MOSTLY else None

    @property
    def floor_seconds(self) -> float:
        """The largest of the floors: no time is below it."""
        return max(self.floors.values(), default=0.0)
