"""The meter: counts instructions, and stops a launch that exceeds its budget."""

import time
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from kernbench.common.compiled import seconds_compiling
from kernbench.ptx.emulator.lanes.fragment import Frame
from kernbench.ptx.emulator.lanes.lanes import Lanes
from kernbench.ptx.emulator.program.measures import Measures
from kernbench.ptx.emulator.program.program import Block
from kernbench.safety.budget import Budget, OverBudgetError

_LOOK_AT_THE_CLOCK = 64
# the same while a callback waits for a moment: a block of a wide batch takes milliseconds
_LOOK_SOON = 4


def now() -> float:
    """Seconds, without compilation of the emulator's own loops."""
    return time.monotonic() - seconds_compiling()


@dataclass(slots=True, eq=False)
class Counts:
    """How often blocks were run, by lanes and by warps; the path, and its hash `trail`."""

    lanes: Counter[int] = field(default_factory=Counter)
    warps: Counter[int] = field(default_factory=Counter)
    steps: int = 0
    trail: int = 0
    # the path itself, if kept: block numbers, and events between them (`engine.ways`)
    way: "array[int] | None" = None

    def add(self, other: "Counts", steps: bool = True) -> None:
        """Add counts from elsewhere; `steps` is False for steps that ran together with steps here."""
        self.lanes.update(other.lanes)
        self.warps.update(other.warps)
        self.steps += other.steps if steps else 0


class Meter:
    """Counts blocks by lanes and warps; all metrics follow from the blocks' contents."""

    def __init__(self, budget: Budget):
        self._budget = budget
        # blocks until the next look at the clock
        self._looks = _LOOK_SOON
        self._most_steps = budget.steps
        # called at each look at the clock
        self.on_look: Callable[[], None] | None = None
        self.renew()
        self.reset()
        self.here: tuple[Block, Lanes] | None = None
        # the call stack of the running fragment
        self.calls: tuple[Frame, ...] = ()

    def renew(self, share: float = 1.0) -> None:
        """Renew the budget's seconds, or a share of them."""
        self._deadline = now() + share * self._budget.seconds

    @property
    def late(self) -> bool:
        """Whether the budget's seconds are used up."""
        return now() > self._deadline

    def reset(self) -> None:
        """Count from zero."""
        self._lanes: defaultdict[int, int] = defaultdict(int)
        self._warps: defaultdict[int, int] = defaultdict(int)
        self.steps = self._trail = 0
        self._way: array[int] | None = None

    def keep_way(self, most: int) -> None:
        """Record the path from now on, up to `most` entries."""
        self._way, self._longest_way = array("i"), most

    def lose_way(self) -> None:
        """Stop recording the path: something happened that a path cannot express."""
        self._way = None

    def counts(self) -> Counts:
        """The counts so far."""
        return Counts(Counter(self._lanes), Counter(self._warps), self.steps, self._trail, self._way)

    def admit(self, more: Counts) -> bool:
        """Add counts from elsewhere, if the budget allows."""
        if self.steps + more.steps > self._budget.steps:
            return False
        for number, lanes in more.lanes.items():
            self._lanes[number] += lanes
            self._warps[number] += more.warps[number]
        self.steps += more.steps
        return True

    def mark(self, event: int) -> None:
        """Add an event that is not a block to the hash of the path."""
        self._trail = hash((self._trail, -1, event))

    def happens(self, event: int) -> None:
        """Append an event to the path."""
        if self._way is not None:
            self._way.append(event)

    def has_steps(self, more: int) -> bool:
        """Whether the budget allows `more` steps."""
        return self.steps + more <= self._budget.steps

    def count(self, block: Block, lanes: Lanes) -> None:
        """Count a block that a fragment is about to run."""
        number = block.number
        self._lanes[number] += lanes.count
        self._warps[number] += lanes.live
        self.steps = steps = self.steps + (len(block.sites) or 1)
        self._trail = hash((self._trail, number))
        if self._way is not None:
            self._way.append(number)
        self._looks -= 1
        if not self._looks or steps > self._most_steps:
            self._looks = _LOOK_AT_THE_CLOCK if self.on_look is None else _LOOK_SOON
            self._check(block, lanes)

    def _check(self, block: Block, lanes: Lanes) -> None:
        if self._way is not None and len(self._way) > self._longest_way:
            self._way = None
        if self.on_look is not None:
            self.on_look()
        late = self.late
        if late or self.steps > self._budget.steps:
            self.here = (block, lanes)
            what = f"{self._budget.seconds:g} seconds" if late else f"{self._budget.steps:,} steps"
            raise OverBudgetError(what)

    def metrics(self, measures: Measures) -> dict[str, int | dict[str, int]]:
        """Instruction, byte and flop counts by kind; `measures` are those of the program's blocks."""
        threads, flops, by_kind, moved = measures.of(self._lanes)
        return {
            "thread_instructions": threads,
            "warp_instructions": measures.instructions(self._warps),
            "steps": self.steps,
            "instructions_by_kind": by_kind,
            "bytes": moved,
            "flops": flops,
        }
