"""Happens-before by brute force: what each thread knows of each other, and all accesses to each piece of memory.

A thread's clock counts its releases. Its knowledge is, for each other thread, the last clock whose accesses are ordered
before its own, and which asynchronous operations are done; everything that orders memory passes it on. Two accesses of
different threads, at least one a write, race unless the later thread knows of the earlier access, or both are strong
and each is in the scope of the other. An asynchronous operation is an actor that does one thing; it sees only those
ordinary writes that a proxy fence has made visible.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

SCOPES = {"cta": 1, "cluster": 2, "gpu": 3, "sys": 3, "gl": 3}
Clocks = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Knowledge:
    """The last known clock of each thread; the same as made visible by proxy fences, by space; known operations."""

    clocks: Clocks
    shared: Clocks
    global_: Clocks
    done: frozenset[int] = frozenset()

    def join(self, other: "Knowledge") -> "Knowledge":
        """The union of both."""
        if other is self:
            return self
        done = self.done if other.done <= self.done else self.done | other.done
        return Knowledge(
            _later(self.clocks, other.clocks),
            _later(self.shared, other.shared),
            _later(self.global_, other.global_),
            done,
        )


def _later(one: Clocks, two: Clocks) -> Clocks:
    return one if one is two or one == two else tuple(map(max, one, two))


def joined(several: Iterable[Knowledge]) -> Knowledge:
    """The union of several."""
    distinct = list({id(one): one for one in several}.values())
    result = distinct[0]
    for one in distinct[1:]:
        result = result.join(one)
    return result


def known_together(several: Iterable[tuple[Knowledge, int, int]]) -> Knowledge:
    """The union of several threads' knowledge with their own clocks: knowledge, number and clock of each."""
    several = list(several)
    known = joined(knowledge for knowledge, _, _ in several)
    clocks = list(known.clocks)
    for _, number, clock in several:
        clocks[number] = max(clocks[number], clock)
    return Knowledge(tuple(clocks), known.shared, known.global_, known.done)


@dataclass(eq=False)
class Actor:
    """Who accesses memory: a thread, or an asynchronous operation (`number` from the number of threads on)."""

    number: int
    cta: int
    knowledge: Knowledge
    clock: int = 1
    asynchronous: bool = False
    # belongs to the async proxy: sees only ordinary writes that a proxy fence has made visible
    proxied: bool = False
    # its warp, or that of the thread that began it
    warp: int = 0
    # the cluster of its block
    cluster: int = -1

    def known(self) -> Knowledge:
        """All its knowledge, including of itself."""
        known = self.knowledge
        if self.asynchronous:
            return Knowledge(known.clocks, known.shared, known.global_, known.done | {self.number})
        clocks = (*known.clocks[: self.number], self.clock, *known.clocks[self.number + 1 :])
        return Knowledge(clocks, known.shared, known.global_, known.done)

    def release(self) -> Knowledge:
        """Publish its knowledge; what it does from now on is later."""
        known = self.known()
        self.clock += 1
        return known

    def acquire(self, knowledge: Knowledge) -> None:
        """Add to its knowledge."""
        self.knowledge = self.knowledge.join(knowledge)

    def show(self, spaces: tuple[str, ...]) -> None:
        """A proxy fence: asynchronous operations may see what is known."""
        known = self.release()
        # visible clocks are never ahead of known ones
        shared = known.clocks if "shared" in spaces else known.shared
        global_ = known.clocks if "global" in spaces else known.global_
        self.knowledge = Knowledge(known.clocks, shared, global_, known.done)


@dataclass(frozen=True, eq=False)
class Access:
    """One access: `scope` is 0 if it is weak; `same` marks a write of the value that is already there."""

    actor: Actor
    clock: int
    space: str
    writes: bool
    scope: int
    same: bool
    line: int
    # threads that observed this strong write by a strong read, and the clock of the first: those ordered after that
    # read are ordered after the write
    seen: dict[int, int] = field(default_factory=dict)

    def known_to(self, actor: Actor) -> bool:
        """Whether an actor's accesses from now on are ordered after this one."""
        if self.actor is actor:
            return True
        known = actor.knowledge
        if self.actor.asynchronous:
            return self.actor.number in known.done
        clocks = known.clocks
        if actor.proxied and self.writes:
            clocks = known.shared if self.space == "shared" else known.global_
        if clocks[self.actor.number] >= self.clock or actor.number in self.seen:
            return True
        return any(clocks[reader] >= clock for reader, clock in self.seen.items())

    def races(self, later: "Access") -> bool:
        """Whether a later access races with this one."""
        if self.actor is later.actor or not (self.writes or later.writes) or self.known_to(later.actor):
            return False
        if self.scope and later.scope and within(self.scope, self.actor, later.scope, later.actor):
            return False
        by_threads = not (self.actor.asynchronous or later.actor.asynchronous)
        return not (self.writes and later.writes and later.same and by_threads)


def within(scope: int, actor: Actor, other_scope: int, other: Actor) -> bool:
    """Whether each of two strong operations is in the scope of the other."""
    needed = "cta" if actor.cta == other.cta else "cluster" if actor.cluster == other.cluster else "gpu"
    return min(scope, other_scope) >= SCOPES[needed]


class Shadow:
    """The accesses to each piece of memory with which a later access might race."""

    def __init__(self) -> None:
        self._accesses: dict[tuple[str, int, int], dict[tuple[int, bool, int], Access]] = {}
        self.races: list[tuple[int, int, str, int]] = []

    def enter(self, pieces: Iterable[tuple[str, int, int]], access: Access) -> None:
        """Record an access to pieces of memory (space, block, address)."""
        for piece in pieces:
            before = self._accesses.setdefault(piece, {})
            racing = [one for one in before.values() if one.races(access)]
            self.races += [(one.line, access.line, piece[0], piece[2]) for one in racing]
            plain = access.writes and not access.scope
            if plain and not racing and all(one.known_to(access.actor) for one in before.values()):
                # whatever is ordered after this write is ordered after those accesses, too
                before.clear()
            before[access.actor.number, access.writes, access.scope] = access


@dataclass(frozen=True, eq=False)
class Release:
    """What a release pattern publishes, with the scope and thread of its first operation."""

    knowledge: Knowledge
    scope: int
    actor: Actor


@dataclass(eq=False)
class Location:
    """A word with strong writes: the last one and the updates before it, and what its readers may acquire."""

    writes: list[Access] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)

    def seen_by(self, scope: int, actor: Actor) -> bool:
        """Whether a strong read observes the last write, as each is in the scope of the other."""
        return bool(self.writes) and within(self.writes[-1].scope, self.writes[-1].actor, scope, actor)


class Patterns:
    """Release and acquire patterns of the PTX memory model; fence.sc counts as fence.acq_rel."""

    def __init__(self) -> None:
        self._locations: dict[tuple[str, int, int], Location] = {}
        self._fences: dict[int, list[Release]] = {}
        self._seen: dict[int, list[tuple[tuple[str, int, int], Release]]] = {}

    def fence(self, actor: Actor, scope: int, acquires: bool, releases: bool) -> None:
        """A fence: acquires from what was read before, and later strong writes release what is known now."""
        if acquires:
            self._learn(actor, scope, None)
        if releases:
            self._fences.setdefault(actor.number, []).append(Release(actor.release(), scope, actor))

    def _learn(self, actor: Actor, scope: int, key: tuple[str, int, int] | None) -> None:
        for where, release in self._seen.get(actor.number, ()):
            if key in (None, where) and within(release.scope, release.actor, scope, actor):
                actor.acquire(release.knowledge)

    def read(self, actor: Actor, key: tuple[str, int, int], scope: int, acquires: bool) -> None:
        """A strong read observes the last strong write, and through updates those before it."""
        location = self._locations.get(key)
        if location is None:
            return
        if location.seen_by(scope, actor):
            self._seen.setdefault(actor.number, []).extend((key, one) for one in location.releases)
            for write in location.writes:
                write.seen.setdefault(actor.number, actor.clock)
        if acquires:
            self._learn(actor, scope, key)

    def write(self, access: Access, key: tuple[str, int, int], releases: bool, update: bool) -> None:
        """A strong write: an update continues the release sequence that it read, others only their own thread's."""
        location, actor, scope = self._locations.setdefault(key, Location()), access.actor, access.scope
        hands_on = update and location.seen_by(scope, actor)
        kept = location.releases if hands_on else [one for one in location.releases if one.actor is actor]
        own = list(self._fences.get(actor.number, ()))
        if releases:
            own.append(Release(actor.release(), scope, actor))
        location.writes = [*location.writes, access] if hands_on else [access]
        location.releases = [*kept, *own]
