"""Memory findings: what an access did, to which array, by which thread; and what it races with."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.findings import advice
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, actor_name, thread_name
from kernbench.ptx.emulator.checks.happens_before.locks import LetGo
from kernbench.ptx.emulator.checks.happens_before.patterns import MemoryOrder
from kernbench.ptx.emulator.checks.happens_before.released_along import HINTS, REASONS
from kernbench.ptx.emulator.checks.happens_before.returned import ACQUIRE, RETURNED, stored_after
from kernbench.ptx.emulator.checks.memory.elections import not_elected
from kernbench.ptx.emulator.checks.memory.meant import MeantArrays
from kernbench.ptx.emulator.checks.memory.pending_copies import PendingCopies
from kernbench.ptx.emulator.checks.memory.warp_synchronous import EXCHANGED, FENCED, SYNCWARP
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory import access
from kernbench.ptx.emulator.memory.access_sites import AccessSites
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, Allocation, Arena
from kernbench.ptx.emulator.memory.cells import CLOCK_LIMIT, NUMBER_MASK, NUMBER_SHIFT, SITE_SHIFT, decode, scope_of
from kernbench.ptx.emulator.memory.heap import is_freed
from kernbench.ptx.emulator.memory.port import Space, Spot, unwritten_bytes
from kernbench.ptx.emulator.observer.origins import Origin
from kernbench.ptx.emulator.observer.values import UndefinedObserver
from kernbench.ptx.emulator.program.program import Program, Site
from kernbench.ptx.emulator.units.batch import Batch
from kernbench.result.finding import Other

# reasons for which a race is formal, and their hints
_EXCUSES = ("", FENCED, *REASONS[1:], RETURNED, EXCHANGED)
_REMEDIES = {FENCED: SYNCWARP, EXCHANGED: SYNCWARP, RETURNED: ACQUIRE, **dict(zip(REASONS[1:], HINTS[1:], strict=True))}
# actors that are asynchronous copies
COPIES = ("barrier", "bulk", "copied")
_VERBS = {"load": "reads", "store": "writes", "atomic": "updates"}
_WORDS = {"load": ("load", "reads"), "store": ("store", "writes"), "atomic": ("atomic", "updates")}


class WarpSynchronousAccesses(Protocol):
    """Volatile accesses within a warp."""

    def fences_between(self, lanes: Array, races: Array) -> Array:
        """Which races have a fence between the two accesses."""

    def exchanges_between(self, lanes: Array, races: Array, loads: Mapping[int, Array], sites: AccessSites) -> Array:
        """Which races are with a load that the lanes of the same warp must have completed by then."""


class LockOrder(Protocol):
    """Locks that threads take and let go."""

    def behind(self, lane: int, number: int, clock: int, mask: int) -> tuple[LetGo | None, bool]:
        """The release of a lock that one of two racing accesses came behind, and whether it is that of the lane."""


class MemoryChecks(Protocol):
    """What is needed from the checks of a batch."""

    batch: Batch
    sites: AccessSites
    undefined: UndefinedObserver
    copies: PendingCopies

    @property
    def warp_synchronous(self) -> WarpSynchronousAccesses:
        """Volatile accesses within a warp."""

    @property
    def patterns(self) -> MemoryOrder:
        """Releases and acquires through memory."""

    @property
    def locks(self) -> LockOrder:
        """Locks that threads take and let go."""

    def released_along(self, lanes: Array, cells: Array) -> Array:
        """For each lane and the cell of an earlier, unordered access: why that access is complete."""


class MemoryReporter:
    """Turns the reports of compiled accesses into findings."""

    def __init__(self, reporter: Reporter, arena: Arena, names: dict[int, str], meant: MeantArrays):
        self._reporter = reporter
        self._arena = arena
        self._names = names
        self._meant = meant
        self._program: Program = reporter.program
        # by address of an array that undefined bytes were copied to: their origin, and the store
        self._carried: dict[int, tuple[Origin, Site]] = {}

    def add_findings(
        self,
        checks: MemoryChecks,
        space: Space,
        site: Site,
        what: str,
        completed: Mapping[int, Array],
        spot: Spot,
        report: Array,
        races: Array,
    ) -> None:
        """Report each kind of fault of one access as one finding; `races` are rows of suspects as in `cells`.

        `completed`: see `completed_loads`.
        """
        batch = checks.batch
        for code, kind in enumerate(access.CODES):
            count, position = int(report[code, 0]), int(report[code, 1])
            if not count:
                continue
            if kind == "race":
                self._races(checks, space, site, what, completed, spot, races)
                continue
            address = (int(spot.addresses[position]) + spot.offset) & ((1 << 64) - 1)
            who = thread_name(batch, int(spot.lanes[position]))
            if kind != "uninitialised-read":
                self._bad(batch, space, site, what, kind, address, spot.nbytes, who, count)
                continue
            undefined, offsets = unwritten_bytes(space, spot)
            offset = int(offsets[position]) + int(np.argmax(undefined[position]))
            if not checks.undefined.explains(space.name, offset, site, int(spot.lanes[position])):
                missing = int(np.count_nonzero(undefined[position]))
                self._bad(batch, space, site, what, kind, address, spot.nbytes, who, count, missing)

    def completed_loads(self, batch: Batch, site: Site) -> Mapping[int, Array]:
        """The loads that are complete when a store runs, and for each lane of a batch of which lanes of its warp."""
        return {
            load: np.bitwise_or.reduce(
                [
                    np.full(batch.lanes, completed.lanes, np.uint32),
                    *(batch.banks[one.bank][one.row, : batch.lanes] for one in completed.registers),
                ]
            )
            for load, completed in self._program.exchanged.get(site.number, {}).items()
        }

    def _races(
        self,
        checks: MemoryChecks,
        space: Space,
        site: Site,
        what: str,
        completed: Mapping[int, Array],
        spot: Spot,
        races: Array,
    ) -> None:
        """Report each instruction that races with this one, by its first race; formal races separately."""
        cells = races[:, 1].astype(np.uint64)
        excuses = checks.warp_synchronous.fences_between(spot.lanes, races)
        if space.name == "shared":
            reasons = checks.released_along(spot.lanes[races[:, 0]], cells)
            excuses = np.where((excuses == 0) & (reasons > 0), reasons.astype(np.uint64) + np.uint64(1), excuses)
        exchanged = checks.warp_synchronous.exchanges_between(spot.lanes, races, completed, checks.sites)
        excuses = np.where((excuses == 0) & exchanged, np.uint64(len(_EXCUSES) - 1), excuses)
        if space.name == "global" and not spot.scope:
            returned = stored_after(checks, self._program, site, spot.lanes, races)
            excuses = np.where((excuses == 0) & returned, np.uint64(_EXCUSES.index(RETURNED)), excuses)
        keys, first, which, counts = np.unique(
            (cells >> np.uint64(SITE_SHIFT)) * np.uint64(len(_EXCUSES)) + excuses,
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        apart = _of_two_blocks(checks.batch, spot.lanes[races[:, 0]], cells)
        for number in np.argsort(first):
            formal = _EXCUSES[int(keys[number]) % len(_EXCUSES)]
            across = bool(apart[which.reshape(-1) == number].any())
            race = races[int(first[number])].tolist()
            self._race(checks, space, site, what, spot, race, int(counts[number]), formal, across)

    @property
    def carries(self) -> bool:
        """Whether undefined bytes were copied to global memory."""
        return bool(self._carried)

    def carried(self, address: int, origin: Origin, site: Site) -> None:
        """Record that undefined bytes were copied to global memory."""
        nearest = self._arena.nearest(address)
        if nearest is not None:
            self._carried.setdefault(nearest.address, (origin, site))

    def copied_to(self, allocation: Allocation) -> tuple[str, tuple[Other, ...]]:
        """The origin of undefined bytes in an array, as text and source locations; empty if there are none."""
        if allocation.address not in self._carried:
            return "", ()
        origin, site = self._carried[allocation.address]
        other = self._reporter.other
        if origin.kind == "register":
            text = f"; PTX line {site.line} stores {origin.what}, a part of which was never set"
            return text, other("a part was never set of what is stored", site)
        text = f"; PTX line {site.line} copies what PTX line {origin.site.line} reads and nobody wrote"
        return text, (*other("what nobody wrote is read", origin.site), *other("and copied", site))

    def bad_copy(
        self, checks: MemoryChecks, space: Space, site: Site, what: str, kind: str, address: int, lane: int, count: int
    ) -> None:
        """An asynchronous copy has an invalid byte."""
        batch = checks.batch
        if kind == "uninitialised-read" and space.name == "shared":
            offset = int(batch.cluster.own(np.array([lane]))[0]) * batch.shared_stride + address
            if checks.copies.fills(offset) or checks.undefined.explains("shared", offset, site, lane):
                return
        who = f"the copy that {thread_name(batch, lane)} begins"
        kind, where, hint = self._situation(batch, site, space, kind, address, 1)
        message = f"{who} {_WORDS[what][1]} a byte at {address:#x}, {where}"
        self._reporter.add(kind, site, message, hint, count, about=kind)

    def _bad(
        self,
        batch: Batch,
        space: Space,
        site: Site,
        what: str,
        kind: str,
        address: int,
        nbytes: int,
        who: str,
        count: int,
        missing: int = 0,
    ) -> None:
        noun, verb = _WORDS[what]
        access_text = f"{who} {verb} {nbytes} bytes at {address:#x}"
        if 0 < missing < nbytes:
            access_text += f" ({missing} of them unwritten)"
        if kind == "misaligned":
            hint = f"a {noun} of {nbytes} bytes needs an address that is a multiple of {nbytes}"
            array = self._memory_name(space, address)
            self._reporter.add(kind, site, f"{access_text}, which is no multiple of {nbytes}", hint, count, array=array)
            return
        kind, where, hint = self._situation(batch, site, space, kind, address, nbytes)
        meant = self._meant.only(site) if space.name == "global" and kind == "out-of-bounds" else None
        array = self._memory_name(space, address if meant is None else meant.address)
        self._reporter.add(kind, site, f"{access_text}, {where}", hint, count, about=kind, array=array)

    def stray(self, batch: Batch, site: Site, writes: bool, address: int, nbytes: int, lane: int, count: int) -> None:
        """An access leaves the array of its pointer, and falls into another one."""
        what = "atomic" if site.effects.access == "atomic" else "store" if writes else "load"
        meant = [f"'{self._named(one)}'" for one in self._meant.arrays(site)]
        one, other = self._meant.only(site), self.global_name(address).rpartition(" at ")[0]
        where = f"in {other}, although its address is made from {' or '.join(meant)}"
        if one is not None:
            where = f"{self._beside(meant[0], one.address, one.nbytes, address, nbytes)}, in {other}"
        message = f"{thread_name(batch, lane)} {_WORDS[what][1]} {nbytes} bytes at {address:#x}, {where}"
        hint = _BOUNDS_HINT if one is None else _bounds_hint(address, one)
        self._reporter.add("out-of-bounds", site, message, hint, count, about="stray", array=meant[0])

    def stray_variable(
        self, batch: Batch, site: Site, writes: bool, offset: int, nbytes: int, lane: int, count: int
    ) -> None:
        """An access leaves the shared variables of its address, and falls into another one."""
        what = "atomic" if site.effects.updates else "store" if writes else "load"
        variables = self._program.meant_variables[site.number]
        one, names = variables[0], [f"'{each.name}'" for each in variables]
        other = self.shared_name(offset).partition("+")[0]
        where = f"in {other}, although its address is made from {' or '.join(names)}"
        if len(variables) == 1 and one.size is not None:
            beside = self._beside(f"{names[0]} in shared memory", one.offset, one.size, offset, nbytes)
            where = f"{beside}, in {other}"
        message = f"{thread_name(batch, lane)} {_WORDS[what][1]} {nbytes} bytes at {offset:#x}, {where}"
        self._reporter.add("out-of-bounds", site, message, _BOUNDS_HINT, count, about="stray", array=one.name)

    def _named(self, allocation: Allocation) -> str:
        return self._names.get(allocation.address, allocation.name or "array")

    def _situation(
        self, batch: Batch, site: Site, space: Space, kind: str, address: int, nbytes: int
    ) -> tuple[str, str, str]:
        """The kind of finding, a description of the location, and a hint."""
        if space.name == "local":
            return self._in_local_memory(batch, site, kind, address, nbytes)
        if space.name == "shared":
            return self._in_shared_memory(space, kind, address, nbytes)
        meant, nearest = self._meant.only(site), self._arena.nearest(address)
        if meant is None and address < _NULL_PAGE:
            return kind, self._at_null(site), _POINTER_HINT
        if meant is None and (nearest is None or not _near(address, nearest)):
            return kind, "where no memory was ever allocated", _POINTER_HINT
        if kind == "uninitialised-read" and nearest is not None:
            return kind, f"which nobody wrote, in {self._name(nearest.address, nearest.name)}", _UNWRITTEN_HINT
        # an access far from any array is meant for its pointer's array, not for the nearest one
        nearest = meant or nearest
        assert nearest is not None, "an address that is near an array"
        name = self._name(nearest.address, nearest.name)
        offset = address - GLOBAL_BASE
        if meant is None and 0 <= offset < self._arena.used and is_freed(self._arena, offset):
            return "use-after-free", f"in {name}, which was freed", "free arrays after the last launch that uses them"
        where = self._beside(name, nearest.address, nearest.nbytes, address, nbytes)
        return kind, f"{where}; valid are {nearest.valid}", _bounds_hint(address, nearest)

    def _at_null(self, site: Site) -> str:
        """Describe a null pointer, with the parameter that it was passed for."""
        passed = self._meant.null(site)
        if not passed:
            return "which is a null pointer or close to one: no array lies there"
        name = self._names.get(0) or passed.removeprefix(f"{self._program.kernel.name}_")
        return f"from the null pointer that '{name}' is: an empty array has no address, nor has None or nullptr"

    def _beside(self, name: str, start: int, size: int, address: int, nbytes: int) -> str:
        end = start + size
        offset = f"offset {address - start} of {name}, which has {size} bytes"
        if address >= end:
            distance = f"{address - end} bytes behind its end" if address > end else "right behind its end"
        elif address < start:
            distance = f"{start - address} bytes before its start"
        elif address + nbytes > end:
            distance = f"the last {address + nbytes - end} of the {nbytes} lie behind its end"
        else:
            distance = "where it may not be accessed"
        return f"{offset}: {distance}"

    def _in_local_memory(self, batch: Batch, site: Site, kind: str, address: int, nbytes: int) -> tuple[str, str, str]:
        if kind == "uninitialised-read":
            return kind, "local memory that the thread did not write", "set the variable first"
        offset = (address & _WINDOW) - batch.frames.base_of(site.function)
        before = [one for one in self._program.codes[site.function].variables if one[1] <= offset]
        if not before or (address & _WINDOW) >= batch.frames.room:
            return kind, "where the thread has no local memory", _LOCAL_HINT
        name, start, size = before[-1]
        return kind, self._beside(f"'{name}' in local memory", start, size, offset, nbytes), _LOCAL_HINT

    def _in_shared_memory(self, space: Space, kind: str, address: int, nbytes: int) -> tuple[str, str, str]:
        offset = address & _WINDOW
        variable = self._shared_variable(offset)
        if kind == "uninitialised-read":
            return kind, f"shared memory that nobody wrote{variable}", "write it, then a barrier, then read"
        before = [one for one in self._program.shared if one.offset <= offset]
        if offset + nbytes <= space.size and before and before[-1].size is not None:
            name, start, size = before[-1].name, before[-1].offset, before[-1].size
            # in the gap after a variable: inside the block's memory, but outside any variable
            if offset + nbytes > start + size:
                return kind, self._beside(f"'{name}' in shared memory", start, size, offset, nbytes), _BOUNDS_HINT
        return kind, f"outside the block's {space.size} bytes of shared memory{variable}", _BOUNDS_HINT

    def _shared_variable(self, offset: int) -> str:
        for variable in reversed(self._program.shared):
            if variable.offset <= offset:
                size = "dynamic" if variable.size is None else f"{variable.size} bytes"
                return f" ('{variable.name}', {size} from {variable.offset:#x})"
        return ""

    def shared_name(self, offset: int) -> str:
        """An offset in shared memory by its variable and address."""
        for variable in reversed(self._program.shared):
            if variable.offset <= offset:
                return f"'{variable.name}'+{offset - variable.offset} ({offset:#x})"
        return f"{offset:#x}"

    def global_name(self, address: int) -> str:
        """An address of global memory by its array."""
        nearest = self._arena.nearest(address)
        return f"{'global memory' if nearest is None else self._name(nearest.address, nearest.name)} at {address:#x}"

    def _name(self, address: int, name: str) -> str:
        return f"'{self._names.get(address, name or 'array')}'"

    def _race(
        self,
        checks: MemoryChecks,
        space: Space,
        site: Site,
        what: str,
        spot: Spot,
        race: list[int],
        count: int,
        formal: str,
        across: bool,
    ) -> None:
        """Report a race, `count` times with the same other instruction; `across`: some are between two blocks."""
        address = (int(spot.addresses[race[0]]) + spot.offset) & ((1 << 64) - 1)
        by, scope = int(spot.lanes[race[0]]), spot.scope
        batch = checks.batch
        who = thread_name(batch, by)
        cell = race[1] & ((1 << 64) - 1)
        other_site, warp, clock = decode(cell)
        lane = (race[2] & -race[2]).bit_length() - 1
        other = checks.sites.numbered[other_site]
        them = actor_name(batch.launch, warp, lane)
        _, verb = _WORDS[what]
        where = self._memory_name(space, address)
        narrow = bool(scope and scope_of(cell))
        why = "the scope of one does not hold the other, and " if narrow else ""
        message = (
            f"{who} {verb} {where} at {address:#x}; {them} accesses it in PTX line {other.line} (`{other.text}`), "
            f"{why or 'and '}nothing orders the two"
        )
        kind = batch.launch.actors.kind(warp % batch.launch.actors.count)
        if kind in COPIES and what == "load":
            message = (
                f"{who} reads {where} at {address:#x}, which {them}, begun in PTX line {other.line} (`{other.text}`), "
                "fills: nothing on the way here has waited for that copy, and nothing orders the two"
            )
            self._reporter.unwaited |= {site.number, other.number}
        hint = _AGENT_HINTS.get(kind, _AGENT_HINTS["barrier"])
        hint = _SCOPE_HINT if narrow else _race_hint(space.name, across) if kind == "warp" else hint
        more, remedy = not_elected(batch, warp, other)
        message, hint = message + more, remedy or hint
        by_flags = kind == "warp" and space.name == "global" and not narrow and formal != RETURNED
        lacks = self._missing(checks, what, race, by, other, across) if by_flags else ""
        met, both = (by, warp, clock, race[2]), ((site, who), (other, them))
        if lacks and self._is_behind_a_release(checks, met, both, where, count):
            return
        if lacks:
            more, hint = (text.format(them=them, who=who) for text in _HALVES[lacks])
            message += more
        message += self._reporter.usual.read_first(other, site) if kind == "wgmma" else ""
        if clock == CLOCK_LIMIT:
            message += f": {them} has ended since, and a barrier orders only what those threads did that come to it"
        if kind == "warp" and other.effects.access == "store" and (other is site or race[2].bit_count() > 1):
            hint += _ELECT_HINT
        others = self._reporter.other(f"the other access, by {them}", other)
        location, hint = self._reporter.location(other), _REMEDIES.get(formal, hint)
        self._reporter.add(
            "race", site, message, hint, count, others, about=location, array=where, cause=other, formal=formal,
            habit="warp-synchronous" if formal == FENCED else "", reach=int(across),
        )  # fmt: skip

    def _is_behind_a_release(
        self,
        checks: MemoryChecks,
        met: tuple[int, int, int, int],
        both: tuple[tuple[Site, str], tuple[Site, str]],
        where: str,
        count: int,
    ) -> bool:
        """Report a race at the access that came behind its thread's release of a lock, if one of `both` did.

        `met` are the arguments of `LockOrder.behind`; of both accesses there is the instruction and the thread.
        """
        let_go, later = checks.locks.behind(*met)
        if let_go is None:
            return False
        (site, who), (other, them) = both if later else both[::-1]
        release = let_go.site
        message = (
            f"{who} {_VERBS[site.effects.access]} {where} behind its release of a lock in PTX line {release.line} "
            f"(`{release.text}`); {them} has taken that lock since, and accesses the same in PTX line {other.line} "
            f"(`{other.text}`)"
        )
        hint = "move this access in front of the release of the lock, and of the fence that belongs to the release"
        others = (
            *self._reporter.other("the release of the lock", release),
            *self._reporter.other(f"the other access, by {them}", other),
        )
        self._reporter.add("race", site, message, hint, count, others, about="behind the release", array=where)
        return True

    def _missing(self, checks: MemoryChecks, what: str, race: list[int], by: int, other: Site, across: bool) -> str:
        """Which half of an order by flags is missing between another thread's access and that of a lane, if any is."""
        if not self._program.hands_over:
            return "both" if across and self._program.has_flags else ""
        _, warp, clock = decode(race[1] & ((1 << 64) - 1))
        lacks = checks.patterns.missing(by, warp, clock, race[2])
        if lacks == "release" and what == "store" and other.effects.access == "load":
            return "wait"
        return lacks

    def _memory_name(self, space: Space, address: int) -> str:
        if space.name == "local":
            return "local memory"
        if space.name == "shared":
            return f"shared memory{self._shared_variable(address & _WINDOW)}"
        nearest = self._arena.nearest(address)
        return "global memory" if nearest is None else self._name(nearest.address, nearest.name)


# an address without its space
_WINDOW = 0x0FFF_FFFF_FFFF
# addresses below this are offsets from a null pointer, as in p[i] with a null p
_NULL_PAGE = 1 << 20
# how far outside an array an address may be and still be attributed to it
_MEANT = 1 << 32


def _near(address: int, allocation: Allocation) -> bool:
    return allocation.address - _MEANT < address < allocation.address + allocation.nbytes + _MEANT


def _bounds_hint(address: int, allocation: Allocation) -> str:
    """The hint for an access outside the allocation that it was meant for."""
    beyond = max(allocation.address - address, address - allocation.address - allocation.nbytes)
    return _BOUNDS_HINT + (_WRAPPED_HINT if beyond >= _FAR_OFF else "")


_POINTER_HINT = (
    "check which argument or register holds the pointer, and that an array of the device is passed for it: "
    + advice.ON_DEVICE
)
_UNWRITTEN_HINT = f"write it first: by a kernel, or where it is made ({advice.MADE})"
_BOUNDS_HINT = f"{advice.BOUNDS}, and check the launch's grid and block"
_LOCAL_HINT = f"{advice.BOUNDS}; a function's variables end with its return"
# distance from which on a wrapped 32-bit index is a likely cause
_FAR_OFF = 1 << 30
_WRAPPED_HINT = f"; so far off, an index of 32 bits may have wrapped: {advice.WIDEN}"
_AGENT_HINTS = {
    "barrier": "wait on the mbarrier that the copy completes on, with the parity of its phase, before the access",
    "bulk": "wait with cp.async.bulk.wait_group (and a barrier after it) before the memory is used again",
    "wgmma": "wait with wgmma.wait_group before the memory is used again",
    "tensor": "wait on the mbarrier that tcgen05.commit arrives on before the memory is used again",
}
_AGENT_HINTS["copied"] = _AGENT_HINTS["bulk"]
_SCOPE_HINT = "give both the .gpu scope; .cta reaches the threads of one block, .cluster those of one cluster"
_ELECT_HINT = "; several threads run that store on one word: if one was meant, let it alone store (elect.sync)"
# by missing part of a release-acquire pattern: the end of the message, and the hint
_HALVES = {
    "both": (
        ": the kernel has no fence, .release or .acquire at all, so that no flag or counter of it passes on what was "
        "done before it was written; both halves are missing",
        "put a fence (fence.acq_rel, __threadfence) between the access of {them} and the write of its flag or counter, "
        "and another behind the read of it by {who}, before the data is touched; in .gpu scope between blocks",
    ),
    "fence": (
        ": {who} has read what was released after that access, but by a read that acquires nothing",
        "read the flag with .acquire, or put a fence (fence.acq_rel, __threadfence) behind the read, before the "
        "data is touched; in .gpu scope between blocks",
    ),
    "acquire": (
        ": {them} has released it, and {who} has not acquired that",
        "before the data is touched, wait for the flag that {them} sets: read it with .acquire, or with a fence behind "
        "it, in .gpu scope between blocks",
    ),
    "wait": (
        ": {them} has read without waiting for {who}, and has released nothing since",
        "if {them} is to read what is written here, let it wait for a flag that {who} sets behind the write, and read "
        "the flag with .acquire; if it is to read what was there before, let it release behind the read, and acquire "
        "that here; in .gpu scope between blocks",
    ),
    "release": (
        ": {them} has released nothing since that access",
        "between that access and the write of the flag put a fence (fence.acq_rel, __threadfence), or write the flag "
        "with .release; in .gpu scope between blocks",
    ),
}


def _of_two_blocks(batch: Batch, lanes: Array, cells: Array) -> Array:
    """Which races are between a lane of one block and a warp of another."""
    warps = (cells >> np.uint64(NUMBER_SHIFT) & np.uint64(NUMBER_MASK)).astype(np.int64) - 1
    apart: Array = warps // batch.launch.actors.count != batch.numbers[lanes // WARP % batch.ctas]
    return apart


def _race_hint(space: str, across: bool) -> str:
    """How to order accesses of threads: by a barrier if all are in one block, else by what works `across` blocks."""
    if space == "global" and not across:
        return _BLOCK_HINT
    return _CLUSTER_HINT if space == "shared" and across else _RACE_HINTS[space]


_BLOCK_HINT = f"separate them by a barrier of the block ({advice.BARRIER})"
_CLUSTER_HINT = (
    "separate them by barrier.cluster.arrive.release and barrier.cluster.wait.acquire, or by an mbarrier with both "
    "ends in .cluster scope: arrive.release.cluster and try_wait.acquire.cluster"
)
_RACE_HINTS = {
    "shared": f"separate them by {advice.SHARED_BARRIER}",
    "global": (
        "let one block own each element, use atomics, or publish with a flag: .release or a fence before the flag is "
        "written, .acquire or a fence after it was read, in .gpu scope between blocks"
    ),
    "local": "",
}
