"""The journal of one cluster: arrivals at mbarriers, waits for phases, and begun operations, in order.

Only the first CTA that runs (and its cluster) is followed; the others run the same program. Positions count events, so
they give the order in this execution, and nothing about time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.agents import Agent
from kernbench.ptx.emulator.asynchronous.hub import AsynchronousBatch
from kernbench.ptx.emulator.barriers.mbarrier_kernels import EXPECTED, PHASE, START
from kernbench.ptx.emulator.barriers.use_kernels import USE, uses_of
from kernbench.ptx.emulator.lanes.arrays import Int, Int64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.program import Site

# maximal number of entries
MOST = 200_000
# lanes to process one by one, and notes to collect before they become entries
_FEW, _MANY = 8, 1 << 12
# an actor: CTA of the cluster and warp in it
Actor = tuple[int, int]


class Entry(NamedTuple):
    """What one warp did at a position; `slot` and `phase` are -1 if no mbarrier is involved.

    `kind` is arrive, commit (an arrival when work completes), bytes, park, pass, begin, done or use. `amount` is
    arrivals, bytes, or the number of a begun operation.
    """

    position: int
    kind: str
    actor: Actor
    site: Site
    slot: int = -1
    phase: int = -1
    amount: int = 0


@dataclass(frozen=True, slots=True)
class NotedBarrier:
    """An mbarrier of the cluster: its CTA, its offset in shared memory, and the arrivals it expects."""

    cta: int
    offset: int
    count: int


class _Begun(NamedTuple):
    """Asynchronous work that began at a position; `numbers` gets the followed operations of its lanes."""

    position: int
    lanes: Array
    site: Site
    numbers: dict[int, tuple[Actor, int]]


class _Done(NamedTuple):
    """Completed operations, of those begun in `begun`."""

    position: int
    begun: _Begun
    chosen: Array


class _Used(NamedTuple):
    """Warps ran an instruction that shows their role."""

    position: int
    actors: list[Actor]
    site: Site


class Journal:
    """The events of the first CTAs of a batch, as many as a cluster has.

    Events are noted as they happen, and become entries when these are requested, or when there are many: converting
    them in bulk takes a fraction of the time.
    """

    def __init__(self, batch: AsynchronousBatch):
        # None after the batch is gone; `_completed` then has its phases for each barrier
        self._batch: AsynchronousBatch | None = batch
        self._completed: dict[int, int] = {}
        self.ctas: int = batch.cluster.size
        self.numbers: list[int] = batch.numbers[: self.ctas].tolist()
        self.warps: int = batch.warps_per_cta
        self._entries: list[Entry] = []
        self._notes: list[Entry | _Begun | _Done | _Used] = []
        self.barriers: dict[int, NotedBarrier] = {}
        self._position = 0
        self._operations = 0
        self._batch_ctas = batch.ctas
        self._parked: dict[tuple[Actor, int], int] = {}
        # the last argument of `used`, and the followed warps among them
        self._users: tuple[Array, list[Actor]] | None = None

    @property
    def full(self) -> bool:
        """Whether the journal is truncated."""
        return len(self.entries) >= MOST

    @property
    def entries(self) -> list[Entry]:
        """All entries, in order."""
        if self._notes:
            notes, self._notes = self._notes, []
            for one in notes:
                self._enter(one)
        return self._entries

    def _keep(self, note: Entry | _Begun | _Done | _Used) -> None:
        self._notes.append(note)
        if len(self._notes) >= _MANY:
            self._entries = self.entries

    def _enter(self, note: Entry | _Begun | _Done | _Used) -> None:
        """Convert a note to entries."""
        if isinstance(note, Entry):
            found = [note]
        elif isinstance(note, _Used):
            found = [Entry(note.position, "use", actor, note.site) for actor in note.actors]
        elif isinstance(note, _Done):
            numbers = note.begun.numbers
            done = {numbers[position] for position in note.chosen.tolist() if position in numbers}
            found = [Entry(note.position, "done", actor, note.begun.site, amount=n) for actor, n in sorted(done)]
        else:
            found = []
            for actor, chosen in self._actors(note.lanes):
                self._operations += 1
                found.append(Entry(note.position, "begin", actor, note.site, amount=self._operations))
                note.numbers.update(dict.fromkeys(chosen, (actor, self._operations)))
        self._entries += found[: max(MOST - len(self._entries), 0)]

    def _follows(self, lanes: Array) -> bool:
        """Whether any of the lanes is in a followed warp."""
        ctas, most = self._batch_ctas, self.ctas
        return ctas <= most or any(lane // WARP % ctas < most for lane in lanes.tolist())

    def _actors(self, lanes: Array) -> list[tuple[Actor, list[int]]]:
        """The followed warps of lanes, each with the positions of its lanes."""
        ctas, found = self._batch_ctas, dict[int, list[int]]()
        if len(lanes) <= _FEW:
            pairs = [(i, lane // WARP) for i, lane in enumerate(lanes.tolist()) if lane // WARP % ctas < self.ctas]
        else:
            here = np.empty((2, len(lanes)), np.int64)
            pairs = here[:, : _followed(lanes, ctas, self.ctas, here)].T.tolist()
        for position, warp in pairs:
            found.setdefault(warp, []).append(position)
        return [((warp % ctas, warp // ctas), found[warp]) for warp in (sorted(found) if len(found) > 1 else found)]

    def _note(self, kind: str, actor: Actor, site: Site, slot: int = -1, phase: int = -1, amount: int = 0) -> None:
        self._keep(Entry(self._position, kind, actor, site, slot, phase, amount))

    @property
    def _live(self) -> AsynchronousBatch:
        """The batch, while it runs."""
        assert self._batch is not None
        return self._batch

    def closed(self) -> "Journal":
        """The journal of a batch that has ended, without the batch: it can be sent to another process."""
        self._completed, self._entries = {slot: self.completed(slot) for slot in self.barriers}, self.entries
        self._batch, self._users = None, None
        return self

    def completed(self, slot: int) -> int:
        """The number of phases of a barrier that have completed."""
        if self._batch is None:
            return self._completed[slot]
        state = self._batch.mbarriers.state[slot]
        return int(state[PHASE] - state[START])

    def _barrier(self, slot: int) -> None:
        barriers = self._live.mbarriers
        if slot not in self.barriers:
            self.barriers[slot] = NotedBarrier(
                int(barriers.homes[slot]), int(barriers.offsets[slot]), int(barriers.state[slot, EXPECTED])
            )

    def _uses(self, slots: Array, lanes: Array, amounts: Array) -> Iterator[tuple[Actor, int, int, int]]:
        """The mbarriers that followed warps use: actor, barrier, its phase, and the sum of the amounts."""
        live = self._live
        uses = np.empty((len(slots), USE), np.int64)
        count = uses_of(slots, lanes, amounts, live.ctas, self.ctas, live.mbarriers.state, uses)
        for warp, slot, phase, amount in uses[:count].tolist():
            self._barrier(slot)
            yield (warp % live.ctas, warp // live.ctas), slot, phase, amount

    def arrived(self, kind: str, slots: Array, lanes: Array, amounts: Array, site: Site) -> None:
        """Lanes are about to arrive, or bytes of copies they began."""
        for actor, slot, phase, amount in self._uses(slots, lanes, amounts):
            self._note(kind, actor, site, slot, phase, amount)
        self._position += 1

    def waited(self, slots: Array, lanes: Array, passed: Array, blocks: bool, site: Site) -> None:
        """Lanes test whether phases have completed: some pass; if the wait blocks, the others park."""
        for actor, slot, phase, passing in self._uses(slots, lanes, passed.astype(np.int64)):
            self._wait(actor, slot, phase, passing > 0, blocks, site)
        self._position += 1

    def _wait(self, actor: Actor, slot: int, phase: int, passed: bool, blocks: bool, site: Site) -> None:
        if passed:
            self._parked.pop((actor, slot), None)
            self._note("pass", actor, site, slot, phase - 1)
        elif blocks and (actor, slot) not in self._parked:
            self._parked[actor, slot] = phase
            self._note("park", actor, site, slot, phase)

    def issued(self, agent: Agent) -> None:
        """Asynchronous work begins; it calls back when it completes."""
        if self._follows(agent.lanes):
            begun = _Begun(self._position, agent.lanes, agent.site, {})
            self._keep(begun)
            agent.noting = partial(self._done, begun)
        self._position += 1

    def _done(self, begun: _Begun, chosen: Array) -> None:
        self._keep(_Done(self._position, begun, chosen))
        self._position += 1

    def used(self, warps: Array, site: Site) -> None:
        """Warps run an instruction that shows their role; most run several in a row."""
        if self._users is None or self._users[0] is not warps:
            self._users = warps, [actor for actor, _ in self._actors(warps * WARP)]
        if self._users[1]:
            self._keep(_Used(self._position, self._users[1], site))
        self._position += 1


@kernel
def _followed(lanes: Int64s, ctas: Int, most: Int, found: Int64s) -> int:
    """Positions and warps of lanes in the first `most` CTAs of a batch of `ctas`; returns their number."""
    count = 0
    for i in range(lanes.size):
        warp = lanes[i] // WARP
        if warp % ctas < most:
            found[0, count], found[1, count] = i, warp
            count += 1
    return count
