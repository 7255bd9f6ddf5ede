"""A journal as a timeline, in order: warps between their waits, and the asynchronous units."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from kernbench.ptx.emulator.asynchronous.journal import Actor, Entry, Journal
from kernbench.ptx.emulator.lanes.arrays import Int64s
from kernbench.ptx.emulator.program.program import Site
from kernbench.result.finding import SourceLocation
from kernbench.result.timeline import Lane, Timeline

Named = TypeVar("Named", Lane, str)


def bare(text: str) -> str:
    """An instruction without its guard."""
    return text.split(" ", 1)[-1] if text.startswith("@") else text


class Swimlane:
    """Spans of a journal: waits and execution of warps, operations of asynchronous units, and flows between them.

    A flow leads from what completed a phase (an arrival, or an operation) to each wait for that phase, and from the
    instruction that began an operation to the operation.
    """

    def __init__(
        self,
        journal: Journal,
        lane_name: Callable[[Actor], str],
        barrier_name: Callable[[int], str],
        block: str,
        location: Callable[[Site], SourceLocation],
    ):
        self._lane_name, self._barrier_name, self._block, self._location = lane_name, barrier_name, block, location
        self._entries = journal.entries
        positions = np.array([entry.position for entry in self._entries], np.int64)
        self._ranks = np.unique(positions, return_inverse=True)[1].reshape(-1)
        # lanes, names and sites are numbered in order of first use; spans refer to them by number
        self._numbers: dict[Lane, int] = {}
        self._names: dict[str, int] = {}
        self._sites: dict[int, tuple[int, Site]] = {}
        self._spans: list[tuple[int, int, int, int, int]] = []
        self._flows: list[tuple[int, int]] = []
        self._lanes: dict[Actor, int] = {}
        self._phases: dict[tuple[int, int], str] = {}
        self._operations: dict[int, str] = {}
        # where each warp's next span begins, and since when it is parked
        self._free: dict[Actor, int] = {}
        self._parked: dict[Actor, tuple[int, Entry]] = {}
        # (barrier, phase) -> the span that completed it; operation -> where it began, and the span that began it
        self._completing: dict[tuple[int, int], int] = {}
        self._begun: dict[int, tuple[int, int]] = {}
        self._finished: dict[tuple[Actor, int], int] = {}
        # unit -> for each of its lanes, when it is free again
        self._units: dict[str, list[int]] = {}

    def timeline(self) -> Timeline:
        """The timeline, with all spans as columns."""
        steps = {"park": self._park, "pass": self._pass, "done": self._done, "bytes": self._signal}
        steps |= {"commit": self._signal}
        for entry, rank in zip(self._entries, self._ranks.tolist(), strict=True):
            steps.get(entry.kind, self._act)(entry, rank)
        end = len(set(self._ranks.tolist()))
        for actor, (start, entry) in self._parked.items():
            self._add(self._lane(actor), f"never passes {self._phase(entry)}", entry.site, start, end)
        return self._columns()

    def _add(self, lane: int, name: str, site: Site, start: int, finish: int) -> int:
        called = self._names.setdefault(name, len(self._names))
        found = self._sites.get(site.number)
        if found is None:
            found = self._sites[site.number] = len(self._sites), site
        self._spans.append((lane, called, found[0], start, max(finish, start + 1)))
        return len(self._spans) - 1

    def _number(self, lane: Lane) -> int:
        return self._numbers.setdefault(lane, len(self._numbers))

    def _lane(self, actor: Actor) -> int:
        found = self._lanes.get(actor)
        if found is None:
            found = self._lanes[actor] = self._number(Lane(self._block, self._lane_name(actor)))
        return found

    def _phase(self, entry: Entry) -> str:
        key = entry.slot, entry.phase
        found = self._phases.get(key)
        if found is None:
            found = self._phases[key] = f"{self._barrier_name(entry.slot)} phase {entry.phase}"
        return found

    def _operation(self, site: Site) -> str:
        """The opcode of an instruction, without its guard."""
        found = self._operations.get(site.number)
        if found is None:
            found = self._operations[site.number] = bare(site.text).split(" ")[0]
        return found

    def _run_until(self, entry: Entry, rank: int) -> None:
        """Add a span for what a warp did since its last entry."""
        start = self._free.get(entry.actor, 0)
        if rank > start:
            self._add(self._lane(entry.actor), "runs", entry.site, start, rank)
        self._free[entry.actor] = rank + 1

    def _act(self, entry: Entry, rank: int) -> None:
        if rank < self._free.get(entry.actor, 0):
            return
        self._run_until(entry, rank)
        label = f"arrives at {self._phase(entry)}" if entry.kind == "arrive" else self._operation(entry.site)
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
        """An operation completes: its span is on the first lane of its unit that is free."""
        if entry.amount not in self._begun:
            return
        start, source = self._begun[entry.amount]
        lane = self._unit_lane(entry.site.effects.unit, start, rank)
        span = self._add(lane, self._operation(entry.site), entry.site, start, rank)
        self._flows.append((source, span))
        self._finished[entry.actor, entry.site.number] = span

    def _unit_lane(self, unit: str, start: int, finish: int) -> int:
        lanes = self._units.setdefault(unit, [])
        number = next((n for n, free in enumerate(lanes) if free <= start), len(lanes))
        lanes[number : number + 1] = [max(finish, start + 1)]
        return self._number(Lane(self._block, unit if not number else f"{unit} {number + 1}"))

    def _signal(self, entry: Entry, rank: int) -> None:
        """An operation completes a phase of a barrier."""
        span = self._finished.get((entry.actor, entry.site.number))
        if span is not None:
            self._completing[entry.slot, entry.phase] = span

    def _columns(self) -> Timeline:
        lane, name, site, start, finish = np.array(self._spans, np.int64).reshape(-1, 5).T
        used = set(lane.tolist())
        lanes = sorted((one for one, number in self._numbers.items() if number in used), key=_lane_order)
        names = sorted(self._names)
        flows = np.array(self._flows, np.int64).reshape(-1, 2)
        locations = [self._location(site) for _, site in self._sites.values()]
        lane, name = _renumbered(lane, lanes, self._numbers), _renumbered(name, names, self._names)
        return Timeline("order", lanes, names, locations, lane, name, site, start, finish, flows)


def _renumbered(column: Int64s, ordered: list[Named], numbers: dict[Named, int]) -> Int64s:
    """A column of numbers, mapped to positions in another order."""
    positions: Int64s = np.zeros(len(numbers), np.int64)
    positions[[numbers[one] for one in ordered]] = np.arange(len(ordered))
    return positions[column]


def _lane_order(lane: Lane) -> tuple[bool, str, list[int]]:
    """Sort key: warps by number, then units."""
    words = lane.name.split(":")[0].split()
    letters = " ".join(word for word in words if not word.isdecimal())
    return "warp" not in words, letters, [int(word) for word in words if word.isdecimal()]
