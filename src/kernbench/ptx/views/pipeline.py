"""The barrier pipeline of a launch, as data and as a timeline: roles of warps, and rings of mbarriers.

It shows which warps do the same, which mbarriers are the stages of one ring, who completes their phases and who waits
for them. It is derived from a journal; positions on the timeline are an order, not time.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernbench.ptx.emulator.asynchronous.journal import Actor, Entry, Journal
from kernbench.ptx.emulator.checks.findings.reporter import by_axis
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.views.swimlane import Swimlane
from kernbench.result.finding import SourceLocation
from kernbench.result.timeline import Timeline

# in the opcode of a copy from shared to global memory
_OUT = ".global.shared"


@dataclass(frozen=True, eq=False)
class Role:
    """Warps that execute the same recorded instructions."""

    actors: tuple[Actor, ...]
    does: tuple[str, ...]

    def name(self, clustered: bool) -> str:
        """The warps and what they do, as text."""
        ctas = sorted({cta for cta, _ in self.actors})
        warps = sorted({warp for _, warp in self.actors})
        where = f"CTA {_runs(ctas)} " if clustered else ""
        plural = "s" if len(warps) > 1 else ""
        return f"{where}warp{plural} {_runs(warps)}" + (f" ({', '.join(self.does)})" if self.does else "")


def _runs(numbers: Sequence[int]) -> str:
    """Numbers as ranges: 0-3, 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def activity(site: Site) -> str:
    """What an instruction reveals of the role of the warps that execute it; empty if nothing."""
    word = site.effects.activity
    if word != "copies":
        return word
    return "copies out" if _OUT in site.text else "copies in"


def roles_of(journal: Journal) -> list[Role]:
    """Warps grouped by the set of instructions in their journal entries."""
    sites: dict[Actor, dict[int, Site]] = {}
    for entry in journal.entries:
        sites.setdefault(entry.actor, {})[entry.site.number] = entry.site
    groups: dict[frozenset[int], list[Actor]] = {}
    for actor in sorted(sites):
        groups.setdefault(frozenset(sites[actor]), []).append(actor)
    found = []
    for numbers, actors in groups.items():
        texts = [activity(sites[actors[0]][number]) for number in sorted(numbers)]
        found.append(Role(tuple(actors), tuple(dict.fromkeys(word for word in texts if word))))
    return found


def pipeline_of(journal: Journal, checks: Any, grid: tuple[int, int, int]) -> "Pipeline":
    """The pipeline of a launch's journal, with the variable names that its findings use."""
    block = f"block {by_axis(journal.numbers[0], grid)}"
    return Pipeline(journal, checks.memory.shared_name, block, checks.reporter.location)


class Pipeline:
    """The pipeline of one journal; `name` maps an offset in shared memory to its variable."""

    def __init__(
        self, journal: Journal, name: Callable[[int], str], block: str, location: Callable[[Site], SourceLocation]
    ):
        self._journal, self._name, self._block, self._location = journal, name, block, location
        self._clustered = journal.ctas > 1
        self._roles = roles_of(journal)
        self._role = {actor: role for role in self._roles for actor in role.actors}
        self._role_names = {role: role.name(self._clustered) for role in self._roles}
        self._by_barrier: dict[int, list[Entry]] = {}
        for entry in journal.entries:
            if entry.slot >= 0:
                self._by_barrier.setdefault(entry.slot, []).append(entry)

    def view(self) -> dict[str, object]:
        """The pipeline as plain data."""
        return {
            "block": self._block,
            "unit": "order",
            "complete": not self._journal.full,
            "roles": [{"name": self._name_of(r), "warps": [list(a) for a in r.actors]} for r in self._roles],
            "rings": [self._ring(slots) for slots in self._rings()],
        }

    def _name_of(self, role: Role) -> str:
        return self._role_names[role]

    def _rings(self) -> list[list[int]]:
        """Rings: mbarriers, by offset, with equal counts that the same instructions complete and wait for."""
        groups: dict[object, list[int]] = {}
        barriers = self._journal.barriers
        for slot in sorted(barriers, key=lambda s: (barriers[s].cta, barriers[s].offset)):
            uses = frozenset((e.kind in ("park", "pass"), e.site.number) for e in self._by_barrier.get(slot, []))
            groups.setdefault((barriers[slot].cta, barriers[slot].count, uses), []).append(slot)
        return list(groups.values())

    def _ring(self, slots: list[int]) -> dict[str, object]:
        entries = [entry for slot in slots for entry in self._by_barrier.get(slot, [])]
        first = self._journal.barriers[slots[0]]
        return {
            "cta": first.cta,
            "arrivals": first.count,
            "completed_by": self._users(entries, ("arrive", "commit", "bytes")),
            "waited_on_by": self._users(entries, ("pass", "park")),
            "stages": [self._stage(slot) for slot in slots],
        }

    def _users(self, entries: list[Entry], kinds: tuple[str, ...]) -> list[dict[str, object]]:
        """Who used barriers, and where: one row for each role, line and kind of use."""
        rows: dict[tuple[Role, int, str], dict[str, object]] = {}
        times: Counter[tuple[Role, int, str]] = Counter()
        for entry in entries:
            if entry.kind not in kinds:
                continue
            role = self._role[entry.actor]
            how = "wait" if "pass" in kinds else entry.kind
            key = (role, entry.site.number, how)
            rows.setdefault(key, {"role": self._name_of(role), "how": how, **self._line(entry.site)})
            times[key] += entry.kind != "park"
        return [{**row, "times": times[key]} for key, row in rows.items()]

    def _line(self, site: Site) -> dict[str, object]:
        return {"line": site.line, "text": site.text}

    def _stage(self, slot: int) -> dict[str, object]:
        entries = self._by_barrier.get(slot, [])
        moved: Counter[int] = Counter()
        for entry in entries:
            if entry.kind == "bytes":
                moved[entry.phase] += entry.amount
        waits = {}
        for role in dict.fromkeys(self._role[e.actor] for e in entries if e.kind in ("pass", "park")):
            waits[self._name_of(role)] = self._waits([e for e in entries if self._role[e.actor] is role])
        return {
            "barrier": self._name(self._journal.barriers[slot].offset),
            "completed": self._journal.completed(slot),
            "bytes": sorted(set(moved.values())),
            "waits": waits,
        }

    def _waits(self, entries: list[Entry]) -> dict[str, object]:
        """One role at one barrier: the phases it waited for, how often they were incomplete, and where it is stuck."""
        passed = [e for e in entries if e.kind == "pass"]
        parked = [e for e in entries if e.kind == "park"]
        last: dict[Actor, Entry] = {e.actor: e for e in entries if e.kind in ("pass", "park")}
        stuck = [e.phase for e in last.values() if e.kind == "park"]
        phases = sorted({e.phase for e in passed})
        return {
            "phases": [phases[0], phases[-1]] if phases else [],
            "fresh": bool(phases) and phases[0] < 0,
            "passed": len(passed),
            "parked": len(parked),
            "stuck": len(stuck),
            "stuck_in": sorted(set(stuck)),
        }

    def timeline(self) -> Timeline:
        """A timeline with a lane for each warp and each asynchronous unit; positions are order, not time."""
        return Swimlane(self._journal, self._lane_name, self._barrier_name, self._block, self._location).timeline()

    def _lane_name(self, actor: Actor) -> str:
        does = ", ".join(self._role[actor].does)
        where = f"CTA {actor[0]} " if self._clustered else ""
        return f"{where}warp {actor[1]}" + (f": {does}" if does else "")

    def _barrier_name(self, slot: int) -> str:
        barrier = self._journal.barriers[slot]
        return (f"CTA {barrier.cta} " if self._clustered else "") + self._name(barrier.offset)
