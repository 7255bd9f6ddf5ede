"""A journal as a timeline: what each warp does between its waits, and what works beside the warps, in order."""

from collections.abc import Callable

import numpy as np

from kernbench.ptx.emulator.asynchronous.journal import Actor, Entry, Journal
from kernbench.ptx.emulator.program.program import Site
from kernbench.result.finding import Place
from kernbench.result.timeline import Lane, Timeline


def bare(text: str) -> str:
    """An instruction without its guard."""
    return text.split(" ", 1)[-1] if text.startswith("@") else text


class Swimlane:
    """Spans of a journal: waits and what is between them on the warps, operations on their units, and flows.

    A flow leads from what completed a phase (an arrival, or an operation) to each wait that it let pass, and from the
    instruction that began an operation to the operation.
    """

    def __init__(
        self,
        journal: Journal,
        lane_name: Callable[[Actor], str],
        barrier_name: Callable[[int], str],
        block: str,
        location: Callable[[Site], Place],
    ):
        self._lane_name, self._barrier_name, self._block, self._location = lane_name, barrier_name, block, location
        self._entries = journal.entries
        positions = np.array([entry.position for entry in self._entries], np.int64)
        self._ranks = np.unique(positions, return_inverse=True)[1].reshape(-1)
        self._spans: list[tuple[Lane, str, Site, int, int]] = []
        self._flows: list[tuple[int, int]] = []
        self._lanes: dict[Actor, Lane] = {}
        # where each warp's next span begins, and where it parked
        self._free: dict[Actor, int] = {}
        self._parked: dict[Actor, tuple[int, Entry]] = {}
        # spans by what they completed; operations by number: where they began, and the span that began them
        self._completing: dict[tuple[int, int], int] = {}
        self._begun: dict[int, tuple[int, int]] = {}
        self._finished: dict[tuple[Actor, int], int] = {}
        # when each copy of a unit's lane is free again
        self._units: dict[str, list[int]] = {}

    def timeline(self) -> Timeline:
        """All spans as columns."""
        steps = {"park": self._park, "pass": self._pass, "done": self._done, "bytes": self._signal}
        steps |= {"commit": self._signal}
        for entry, rank in zip(self._entries, self._ranks.tolist(), strict=True):
            steps.get(entry.kind, self._act)(entry, rank)
        end = len(set(self._ranks.tolist()))
        for actor, (start, entry) in self._parked.items():
            self._add(self._lane(actor), f"never passes {self._phase(entry)}", entry.site, start, end)
        return self._columns()

    def _add(self, lane: Lane, name: str, site: Site, start: int, finish: int) -> int:
        self._spans.append((lane, name, site, start, max(finish, start + 1)))
        return len(self._spans) - 1

    def _lane(self, actor: Actor) -> Lane:
        found = self._lanes.get(actor)
        if found is None:
            found = self._lanes[actor] = Lane(self._block, self._lane_name(actor))
        return found

    def _phase(self, entry: Entry) -> str:
        return f"{self._barrier_name(entry.slot)} phase {entry.phase}"

    def _run_until(self, entry: Entry, rank: int) -> None:
        """What a warp did since its last entry."""
        start = self._free.get(entry.actor, 0)
        if rank > start:
            self._add(self._lane(entry.actor), "runs", entry.site, start, rank)
        self._free[entry.actor] = rank + 1

    def _act(self, entry: Entry, rank: int) -> None:
        if rank < self._free.get(entry.actor, 0):
            return
        self._run_until(entry, rank)
        name = bare(entry.site.text).split(" ")[0]
        label = f"arrives at {self._phase(entry)}" if entry.kind == "arrive" else name
        span = self._add(self._lane(entry.actor), label, entry.site, rank, rank + 1)
        if entry.kind == "arrive":
            self._completing[entry.slot, entry.phase] = span
        elif entry.kind == "begin":
            self._begun[entry.amount] = (rank, span)

    def _park(self, entry: Entry, rank: int) -> None:
        self._run_until(entry, rank)
        self._parked[entry.actor] = (rank, entry)

    def _pass(self, entry: Entry, rank: int) -> None:
        start, parked = self._parked.pop(entry.actor, (rank, None))
        if parked is None:
            self._run_until(entry, rank)
        self._free[entry.actor] = rank + 1
        label = f"{'waits for' if parked else 'passes'} {self._phase(entry)}"
        span = self._add(self._lane(entry.actor), label, entry.site, start, rank + 1)
        source = self._completing.get((entry.slot, entry.phase))
        if source is not None:
            self._flows.append((source, span))

    def _done(self, entry: Entry, rank: int) -> None:
        """An operation completes: its span lies on the first lane of its unit that is free."""
        if entry.amount not in self._begun:
            return
        start, source = self._begun[entry.amount]
        text = bare(entry.site.text)
        span = self._add(
            self._unit_lane(entry.site.effects.unit, start, rank), text.split(" ")[0], entry.site, start, rank
        )
        self._flows.append((source, span))
        self._finished[entry.actor, entry.site.number] = span

    def _unit_lane(self, unit: str, start: int, finish: int) -> Lane:
        lanes = self._units.setdefault(unit, [])
        number = next((n for n, free in enumerate(lanes) if free <= start), len(lanes))
        lanes[number : number + 1] = [max(finish, start + 1)]
        return Lane(self._block, unit if not number else f"{unit} {number + 1}")

    def _signal(self, entry: Entry, rank: int) -> None:
        """An operation signals a barrier that it is done."""
        span = self._finished.get((entry.actor, entry.site.number))
        if span is not None:
            self._completing[entry.slot, entry.phase] = span

    def _columns(self) -> Timeline:
        lanes = sorted({span[0] for span in self._spans}, key=_lane_order)
        names = sorted({span[1] for span in self._spans})
        lane_numbers = {lane: number for number, lane in enumerate(lanes)}
        name_numbers = {name: number for number, name in enumerate(names)}
        sites = {span[2].number: span[2] for span in self._spans}
        numbers = {number: index for index, number in enumerate(sites)}
        rows = [
            (lane_numbers[span[0]], name_numbers[span[1]], numbers[span[2].number], *span[3:]) for span in self._spans
        ]
        lane, name, site, start, finish = np.array(rows, np.int64).reshape(-1, 5).T
        flows = np.array(self._flows, np.int64).reshape(-1, 2)
        locations = [self._location(site) for site in sites.values()]
        return Timeline("order", lanes, names, locations, lane, name, site, start, finish, flows)


def _lane_order(lane: Lane) -> tuple[bool, str, list[int]]:
    """Warps by their numbers, then units by theirs."""
    words = lane.name.split(":")[0].split()
    letters = " ".join(word for word in words if not word.isdecimal())
    return "warp" not in words, letters, [int(word) for word in words if word.isdecimal()]
