"""Spinning: a loop that completes an iteration without changing anything waits for memory, and is parked.

A loop that returns to an earlier state without reading memory never ends, and is reported at once. States are compared
in each iteration where a loop reads what others write, and now and then in all other loops. A loop that reads a clock
never repeats its state, except while the clock stands still; then it is parked until a later time. For a loop that
waits for a clock alone the clock runs faster after many iterations, so that a second is at most some hundred of them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes
from kernbench.ptx.emulator.memory.arena import LOCAL_BASE
from kernbench.ptx.emulator.program.program import Block, WaitLoop
from kernbench.ptx.emulator.program.steps import AnyFragment

if TYPE_CHECKING:
    from kernbench.ptx.emulator.engine.scheduler import Scheduler

# after this many iterations of a loop that keeps changing something, other fragments run first: for loops that read
# what others write, and for loops that probably only compute
_PATIENCE = 32
_LONG_PATIENCE = 4096
# a state is kept at each iteration that is a power of two from the first on, and compared in this many after it
_FIRST_LOOK = 256
_LONGEST_CYCLE = 64
# maximal bytes of local or shared memory to compare
_MOST_COMPARED = 1 << 22
# after this many iterations of a loop that only a clock ends, time runs faster, by this part of the time spent in it
_BUSY_ROUNDS = 256
_BUSY_PART = 16
# the bits above these give the space of a generic address
_WINDOW = np.uint64(44)
_ADDRESS = (1 << 64) - 1


class EndlessError(Exception):
    """Lanes are in the same state again, and nothing outside can change what they do next."""

    def __init__(self, fragment: AnyFragment, loop: WaitLoop, rounds: int):
        super().__init__("a loop never ends")
        self.fragment, self.loop, self.rounds = fragment, loop, rounds


@dataclass(slots=True, eq=False)
class _Round:
    """Lanes in a loop: iterations so far, and a saved state with memory's change count and the iteration it is from."""

    lanes: Lanes
    count: int = 0
    seen: int = 0
    changes: int = -1
    values: tuple[Array, ...] | None = None
    # the loop has yielded, and this iteration is checked already
    yielded: bool = False
    # time of the first iteration
    began: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Spinner:
    """A parked loop; `changes` is memory's change count at its last check, None if it only yielded."""

    fragment: AnyFragment
    loop: WaitLoop
    changes: int | None


class Spinning:
    """The parked loops of one batch."""

    def __init__(self, scheduler: "Scheduler"):
        self._scheduler = scheduler
        self._batch = scheduler.batch
        self._rounds: dict[tuple[int, tuple[int, ...]], _Round] = {}
        self.parked: list[Spinner] = []
        # of loops that try to take something: how many blocks try next, and memory's change count when some last tried
        self._crowd, self._tried = 1, -1
        # loops that waited for a later time since the last other event, and whether one of them has been left for good
        self._later: dict[int, WaitLoop] = {}
        self.left = False

    def parks(self, fragment: AnyFragment, block: Block) -> bool:
        """Called at a loop's head: park the fragment if it waits, and return whether it was."""
        loop = block.wait_loop
        assert loop is not None
        if loop.waits and self._batch.recorder.recording:
            self._batch.recorder.turn(fragment, loop)
        last = self._rounds.get(fragment.point)
        if loop.head in self._later and not any(_within(fragment, other) for other in self._later.values()):
            self.left = True
        if last is None or fragment.behind not in loop.blocks or not _same_lanes(last.lanes, fragment.lanes):
            last = self._rounds[fragment.point] = _Round(fragment.lanes)
            last.began = self._batch.launch.time.now() if loop.only_clocked else 0
        if last.yielded:
            last.yielded = False
            return False
        last.count += 1
        if loop.only_clocked and last.count > _BUSY_ROUNDS:
            self._batch.launch.time.hurries(last.began, _BUSY_PART)
        if self._looks(loop, last.count) and self._closed(fragment, loop) and self._repeats(fragment, loop, last):
            self._park(fragment, loop, last.changes)
            return True
        if not loop.reads_memory or last.count % (_PATIENCE if loop.waits else _LONG_PATIENCE):
            return False
        last.yielded = True
        self._park(fragment, loop, None)
        return True

    def _looks(self, loop: WaitLoop, count: int) -> bool:
        """Whether the state is compared in this iteration."""
        return loop.waits or (count >= _FIRST_LOOK and count - (1 << count.bit_length() - 1) <= _LONGEST_CYCLE)

    def _closed(self, fragment: AnyFragment, loop: WaitLoop) -> bool:
        """Whether these lanes' next steps depend on memory alone, not on other threads or a clock."""
        if loop.timed and not self._batch.launch.time.stands:
            return False
        if loop.closed == "block":
            return self._batch.cluster.size == 1 and self._whole_blocks(fragment)
        return loop.closed == "lane" or (loop.closed == "warp" and fragment.lanes.whole)

    def _whole_blocks(self, fragment: AnyFragment) -> bool:
        """Whether the fragment has all living threads of each of its blocks."""
        batch = self._batch
        warps, active = fragment.lanes.present()
        here = np.bincount(warps % batch.ctas, weights=active.sum(axis=1), minlength=batch.ctas)
        return bool(((here == 0) | (here == batch.alive_by_cta)).all())

    def _changes(self, loop: WaitLoop) -> int:
        """Memory's change count; a block's own shared memory is compared by content instead."""
        launch = self._batch.launch
        return int(launch.changes_beside_stores_to_shared() if loop.closed == "block" else launch.changes())

    def _repeats(self, fragment: AnyFragment, loop: WaitLoop, last: _Round) -> bool:
        """Whether the lanes are in an earlier state, with memory unchanged since."""
        changes, values = self._changes(loop), self._values(fragment, loop)
        if values is None:
            return False
        if last.values is not None and last.changes == changes and _same(fragment, last.values, values):
            if not loop.timed and (not loop.reads_memory or self._reads_own_memory(fragment, loop)):
                raise EndlessError(fragment, loop, last.count - last.seen)
            return True
        power = last.count & (last.count - 1) == 0
        if power or last.changes != changes or (loop.waits and last.count < _FIRST_LOOK):
            last.values, last.changes, last.seen = values, changes, last.count
        return False

    def _reads_own_memory(self, fragment: AnyFragment, loop: WaitLoop) -> bool:
        """Whether the last iteration read only the lanes' own local memory, which nobody else changes."""
        if not loop.reads or loop.waits:
            return False
        active = fragment.lanes.active()
        for read in loop.reads:
            addresses = np.broadcast_to(fragment.window.rows[read.slot], active.shape)[active] + np.uint64(
                read.offset & _ADDRESS
            )
            if read.space or ((addresses >> _WINDOW) != LOCAL_BASE >> int(_WINDOW)).any():
                return False
        return True

    def _values(self, fragment: AnyFragment, loop: WaitLoop) -> tuple[Array, ...] | None:
        """The loop-carried state: local memory of the lanes (and shared memory of their blocks), then registers."""
        frames = self._batch.frames
        parts = frames.in_use(fragment)
        if sum(nbytes for _, nbytes in parts) * fragment.lanes.count > _MOST_COMPARED:
            return None
        lanes = frames.lanes_of(fragment) if frames.nbytes else np.arange(0)
        memory = np.concatenate([frames.bytes_at(lanes, start, nbytes) for start, nbytes in parts], axis=1)
        if loop.closed == "block":
            shared = self._shared(fragment)
            if shared.size > _MOST_COMPARED:
                return None
            memory = np.concatenate([memory.reshape(-1), shared.reshape(-1)])
        return (memory, *(np.array(fragment.window.rows[slot]) for slot in loop.carried))

    def _shared(self, fragment: AnyFragment) -> Array:
        """The shared memory of a fragment's blocks."""
        batch = self._batch
        blocks = np.unique(fragment.lanes.present()[0] % batch.ctas)
        words: Array = batch.port.space("shared").words[1]
        held: Array = words[: batch.ctas * batch.shared_stride].reshape(batch.ctas, -1)[blocks]
        return held

    def _park(self, fragment: AnyFragment, loop: WaitLoop, changes: int | None) -> None:
        if changes is not None:
            self._rounds.pop(fragment.point, None)
        self.parked.append(Spinner(fragment, loop, changes))
        # the time of parking depends on the memory changes of all CTAs of the batch
        self._scheduler.meter.mark(int(self._batch.numbers[0]))

    def wake_changed(self) -> bool:
        """Nothing else can run: wake loops if memory has changed since their last check."""
        waking = [s for s in self.parked if s.changes is not None and s.changes != self._changes(s.loop)]
        taking = [spinner for spinner in waking if spinner.loop.takes]
        woken = self._wake([spinner for spinner in waking if not spinner.loop.takes])
        return self._try_some(taking) or woken if taking else woken

    def _try_some(self, taking: list[Spinner]) -> bool:
        """Wake the first blocks of loops that try to take something; twice as many each time nobody succeeds.

        Only one thread that waits for a lock can get it. Waking all would cost one futile iteration each for every
        release.
        """
        changes = self._batch.changes()
        self._crowd = 2 * self._crowd if changes == self._tried else 1
        self._tried = changes
        blocks = np.unique(np.concatenate([s.fragment.lanes.present()[0] % self._batch.ctas for s in taking]))
        first = np.zeros(self._batch.ctas, bool)
        first[blocks[: self._crowd]] = True
        waking: list[Spinner] = []
        for spinner in taking:
            lanes = spinner.fragment.lanes
            chosen = np.repeat(first[lanes.warp_numbers() % self._batch.ctas], WARP)
            now, later = self._scheduler.split(spinner.fragment, chosen)
            index = self.parked.index(spinner)
            parts = [Spinner(part, spinner.loop, spinner.changes) for part in (now, later) if part is not None]
            self.parked[index : index + 1] = parts
            waking += parts[:1] if now is not None else []
        return self._wake(waking)

    def wake_yielded(self) -> bool:
        """Nothing else can run at all: wake loops that yielded."""
        return self._wake([spinner for spinner in self.parked if spinner.changes is None])

    @property
    def timed(self) -> bool:
        """Whether a parked loop reads a clock."""
        return any(spinner.loop.timed for spinner in self.parked)

    def wake_timed(self, progress: bool) -> bool:
        """Time has advanced.

        Wake loops that read a clock; `progress` says that something else has happened in between.
        """
        waking = [spinner for spinner in self.parked if spinner.loop.timed]
        if progress:
            self._later, self.left = {}, False
        self._later.update((spinner.loop.head, spinner.loop) for spinner in waking)
        return self._wake(waking)

    def _wake(self, waking: list[Spinner]) -> bool:
        gone = {id(spinner) for spinner in waking}
        self.parked = [spinner for spinner in self.parked if id(spinner) not in gone]
        for spinner in waking:
            self._scheduler.push(spinner.fragment)
        return bool(waking)


def _within(fragment: AnyFragment, loop: WaitLoop) -> bool:
    """Whether lanes at a loop's head arrived without leaving another loop, in the same function or by a call."""
    calls = {frame.following - 1 for frame in fragment.stack}
    return bool(calls & loop.blocks) or ({fragment.block, fragment.behind} <= loop.blocks)


def _same_lanes(one: Lanes, two: Lanes) -> bool:
    if one is two:
        return True
    if one.count != two.count or one.first != two.first or one.last != two.last:
        return False
    masks = one.mask is two.mask or np.array_equal(one.active(), two.active())
    return bool(masks and np.array_equal(one.warp_numbers(), two.warp_numbers()))


def _same(fragment: AnyFragment, before: tuple[Array, ...], now: tuple[Array, ...]) -> bool:
    mask = fragment.lanes.mask
    if not np.array_equal(before[0], now[0]):
        return False
    for old, new in zip(before[1:], now[1:], strict=True):
        differs = old != new
        if (differs if mask is None else differs & mask).any():
            return False
    return True
