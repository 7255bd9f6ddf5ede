"""LaunchTime: the model's result for one launch: its time, its bound, and the stalls of its warps."""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.time.chip.occupancy import Occupancy
from kernbench.ptx.time.engine.reasons import Reason

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
# a unit that is busy for this share of the time is the bound
MOSTLY = 0.6


class Unit(IntEnum):
    """Units that can be the bound; GPU-wide rates come last."""

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
    # serial handovers between CTAs through L2
    HANDOVERS = 13


@dataclass(frozen=True)
class CtaSpans:
    """The simulated CTAs: number, SM group and slot, start and end in cycles.

    `stands_for` is the number of SMs that the SM group represents.
    """

    cta: Ints
    group: Ints
    slot: Ints
    start: Floats
    end: Floats
    stands_for: Ints


@dataclass(frozen=True)
class Traffic:
    """Bytes of the whole launch by level: requested from L1 by warps, from L2 by SMs, read from and written to HBM.

    Shared memory: bytes, passes over its banks, and passes without conflicts.
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
    """Warp cycles of all SMs by op of the streams' table (rows) and reason (columns); and issue counts of the ops."""

    cycles: Floats
    issued: Ints

    def by_reason(self) -> dict[Reason, float]:
        """Summed over all ops."""
        return {reason: float(self.cycles[:, reason].sum()) for reason in Reason}


@dataclass(frozen=True)
class Followed:
    """The instruction trace of one CTA, in the order of issue.

    - `warp`: its number in the CTA; `op`: the instruction;
    - `why`: why the warp was not ready before; `held`: what held it when it was ready;
    - `began`: the asynchronous unit it started (a code of the model), working `until`;
    - `since`, `fixed`, `ready`, `issued`: cycles in which the warp's last instruction issued, its fixed stall ended,
      the warp was ready, and the instruction issued.
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

    `cycles` are from the first CTA's start to the last one's end, at `clock_mhz`. `overhead_ns` is the launch overhead,
    and `seconds` includes it. `busy` is the utilisation of each unit over `cycles`, for units of SMs the mean over SMs;
    `bound` names the busiest. `floors` are lower bounds by unit: no time is below them.
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
    # "SASS of ptxas 13.0.88" or a text that begins with "expansion of PTX", and the share of steps joined
    source: str
    joined: float
    # warp instructions issued by the whole launch, and those simulated
    instructions: int
    simulated: int
    # "not validated" for GPUs whose times were not compared with measurements
    predictions: str
    notes: tuple[str, ...] = field(default=())
    # the trace of one CTA
    followed: Followed | None = None
    # the cycles due to cold caches at the start, which a launch right after another does not have; and the gap to the
    # launch before, by how it follows it
    cold_cycles: float = 0.0
    # cycles to start all CTAs, one after the other
    dispatch_cycles: float = 0.0
    gaps_ns: dict[str, float] = field(default_factory=dict)
    # programmatic dependent launch: cycles of a CTA before it waits for the launch before, and of the last ones after
    # they let the next one begin
    before_wait: float = 0.0
    after_trigger: float = 0.0
    # why there is no machine code, where there is none
    no_code: str = ""

    @property
    def seconds(self) -> float:
        """From the launch to its end, in seconds."""
        return self.cycles / (self.clock_mhz * 1e6) + self.overhead_ns * 1e-9

    @property
    def launch_seconds(self) -> float:
        """Launch overhead: around the CTAs, and until the first ones run at full speed."""
        return self.overhead_ns * 1e-9 + min(self.cold_cycles, self.cycles) / (self.clock_mhz * 1e6)

    @property
    def tail_cycles(self) -> float:
        """Cycles in which SMs were idle while others worked, on average over all SMs with work.

        Stores still in flight after the last CTA are not counted.
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
        """The busiest unit, if it is busy for most of the time; None if latencies are the bound."""
        unit = max(self.busy, key=lambda one: (self.busy[one], -one))
        return unit if self.busy[unit] >= MOSTLY else None

    @property
    def floor_seconds(self) -> float:
        """The largest floor: no time is below it."""
        return max(self.floors.values(), default=0.0)
