"""mbarriers, and asynchronous operations: each is an actor of its own, and those who wait for it learn of its end."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kernbench.ptx.reference.machine import Machine, Thread
from kernbench.ptx.reference.order import Actor, Knowledge, joined, known_together

_PHASE = 24


@dataclass(eq=False)
class Mbarrier:
    """One mbarrier: its phase, what is still missing in it, and the knowledge that waits for its phases give."""

    expected: int
    pending: int
    phase: int = 0
    bytes: int = 0
    # of arrivals: knowledge, number and clock of the thread; of completed operations: their knowledge; that of the last
    # completed phase
    arrivals: list[tuple[Knowledge, int, int]] = field(default_factory=list)
    held: list[Knowledge] = field(default_factory=list)
    done: Knowledge | None = None
    waited: int = 0
    # the thread that initialised it, and its clock then
    made: tuple[Thread, int] | None = None

    def look(self, machine: Machine) -> None:
        """Complete the phase if nothing is missing."""
        machine.events += 1
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = self.phase + 1, self.expected
            learnt = [known_together(self.arrivals)] if self.arrivals else []
            learnt += self.held if self.done is None else [*self.held, self.done]
            self.arrivals, self.held, self.done = [], [], joined(learnt) if learnt else None


def init(machine: Machine, thread: Thread, address: int, count: int) -> None:
    """mbarrier.init."""
    machine.mbarriers[machine.home(thread, address)] = Mbarrier(count, count, made=(thread, thread.clock))
    machine.events += 1


def awaited(machine: Machine, thread: Thread, address: int) -> bool:
    """Whether a thread uses its mbarrier before the init; then it retries later, so that only the order is a fault."""
    early = machine.home(thread, address) not in machine.mbarriers
    (machine.before_init.add if early else machine.before_init.discard)(thread.number)
    if early:
        thread.pc -= 1
    return early


def _at(machine: Machine, actor: Actor, address: int) -> Mbarrier:
    """The mbarrier at an address; it is a race if its init does not come before.

    Other lanes of the initialising warp need no order. An asynchronous operation signals on behalf of the thread that
    begins it, which must know of the init, in whichever block of the cluster the mbarrier is.
    """
    home = machine.home(actor, address)
    found = machine.mbarriers.get(home)
    if found is None:
        machine.misuse.append("an mbarrier is used before its init")
        found = machine.mbarriers[home] = Mbarrier(1, 1)
    if found.made is not None:
        maker, clock = found.made
        if (maker.cta, maker.warp) != (actor.cta, actor.warp) and actor.knowledge.clocks[maker.number] < clock:
            machine.shadow.races.append((0, 0, "mbarrier", address))
    return found


def arrive(machine: Machine, thread: Thread, address: int, count: int, expected: int, releases: bool) -> int:
    """An arrival, after its expected bytes are added; returns the state before it."""
    barrier = _at(machine, thread, address)
    state = barrier.phase << _PHASE | barrier.pending
    barrier.bytes += expected
    if _counted(machine, barrier, count):
        if releases:
            barrier.arrivals.append((thread.knowledge, thread.number, thread.clock))
            thread.clock += 1
        barrier.look(machine)
    return state


def _counted(machine: Machine, barrier: Mbarrier, count: int) -> bool:
    """Count arrivals in the current phase; False if there are more than expected."""
    if barrier.phase > barrier.waited:
        machine.misuse.append("an arrival in a phase before anyone waited for the one before")
        barrier.waited = barrier.phase
    if count > barrier.pending:
        machine.misuse.append("more arrivals than a phase expects")
        return False
    barrier.pending -= count
    return True


def transact(machine: Machine, thread: Thread, address: int, amount: int) -> None:
    """expect_tx, or complete_tx for a negative amount."""
    barrier = _at(machine, thread, address)
    barrier.bytes += amount
    barrier.look(machine)


def wait(machine: Machine, thread: Thread, address: int, wanted: int, parity: bool, acquires: bool) -> bool:
    """Whether the phase that a thread waits for is complete; if so the thread acquires the arrivals' knowledge."""
    barrier = _at(machine, thread, address)
    passed = barrier.phase & 1 != wanted & 1 if parity else barrier.phase > wanted >> _PHASE
    if passed:
        barrier.waited = barrier.phase
        if acquires and barrier.done is not None:
            thread.acquire(barrier.done)
    return passed


@dataclass(eq=False)
class Operation:
    """A copy in flight. `actor` performs it; `reader` only reads its source, and may be known to be done earlier.

    It reads `taken` bytes; the rest of `nbytes` is zero.
    """

    machine: Machine
    actor: Actor
    reader: Actor
    spaces: tuple[str, str]
    addresses: tuple[int, int]
    nbytes: int
    taken: int
    line: int
    mbarrier: int | None = None
    finished: bool = False

    def complete(self) -> None:
        """Copy the bytes, and signal the mbarrier."""
        if self.finished:
            return
        self.finished = True
        machine, (to, source) = self.machine, self.spaces
        if self in machine.in_flight:
            machine.in_flight.remove(self)
        data = bytes(self.nbytes)
        if self.taken:
            data = machine.read(source, self.actor, self.addresses[1], self.taken) + data[self.taken :]
            machine.note(self.reader, source, self.addresses[1], self.taken, False, 0, False, self.line)
        machine.write(to, self.actor, self.addresses[0], data)
        machine.note(self.actor, to, self.addresses[0], self.nbytes, True, 0, False, self.line)
        if self.mbarrier is not None:
            barrier = _at(machine, self.actor, self.mbarrier)
            barrier.held.append(self.actor.known().join(self.reader.known()))
            barrier.bytes -= self.nbytes
            barrier.look(machine)


def copy(
    machine: Machine, thread: Thread, spaces: tuple[str, str], addresses: tuple[int, int], nbytes: int,
    mbarrier: int | None, line: int,
) -> None:  # fmt: skip
    """Begin a bulk copy in the async proxy; it completes on an mbarrier, or belongs to the thread's open group."""
    actor, reader = machine.new_actor(thread, True), machine.new_actor(thread, True)
    operation = Operation(machine, actor, reader, spaces, addresses, nbytes, nbytes, line, mbarrier)
    machine.in_flight.append(operation)
    thread.clock += 1
    if mbarrier is None:
        thread.bulk[-1].append(operation)


def copy_lane(machine: Machine, thread: Thread, addresses: tuple[int, int], nbytes: int, taken: int, line: int) -> None:
    """Begin a cp.async in the thread's open group: `taken` bytes of global memory, followed by zeros."""
    actor, reader = machine.new_actor(thread, False), machine.new_actor(thread, False)
    operation = Operation(machine, actor, reader, ("shared", "global"), addresses, nbytes, taken, line)
    machine.in_flight.append(operation)
    thread.clock += 1
    thread.groups[-1].append(operation)


@dataclass(eq=False)
class Sent:
    """A store or update in flight to the shared memory of a block of the cluster, whose mbarrier counts its bytes.

    `new` computes the bytes to store from the present ones; `scope` is 0 for a store, which is weak.
    """

    machine: Machine
    actor: Actor
    address: int
    nbytes: int
    new: Callable[[bytes], bytes]
    scope: int
    mbarrier: int
    line: int

    def complete(self) -> None:
        """Store, and signal the mbarrier."""
        machine, nbytes = self.machine, self.nbytes
        machine.write(
            "shared", self.actor, self.address, self.new(machine.read("shared", self.actor, self.address, nbytes))
        )
        machine.note(self.actor, "shared", self.address, nbytes, True, self.scope, False, self.line)
        barrier = _at(machine, self.actor, self.mbarrier)
        barrier.held.append(self.actor.known())
        barrier.bytes -= nbytes
        barrier.look(machine)


def send(
    machine: Machine, thread: Thread, address: int, nbytes: int, new: Callable[[bytes], bytes], scope: int,
    mbarrier: int, line: int,
) -> None:  # fmt: skip
    """st.async and red.async."""
    _at(machine, thread, mbarrier)
    actor = machine.new_actor(thread, False)
    machine.in_flight.append(Sent(machine, actor, address, nbytes, new, scope, mbarrier, line))
    thread.clock += 1


@dataclass(eq=False)
class LaterArrival:
    """An arrival that is made when copies have completed; those who wait for it acquire the copies' knowledge, too."""

    machine: Machine
    barrier: Mbarrier
    copies: list[Operation]
    released: tuple[Knowledge, int, int]

    def complete(self) -> None:
        """Complete the copies, and arrive."""
        for operation in self.copies:
            operation.complete()
        if _counted(self.machine, self.barrier, 1):
            self.barrier.arrivals.append(self.released)
            self.barrier.held += [one.actor.known().join(one.reader.known()) for one in self.copies]
            self.barrier.look(self.machine)


def arrive_later(machine: Machine, thread: Thread, address: int, added: bool) -> None:
    """cp.async.mbarrier.arrive: after the thread's copies so far; `added`: the phase expects one arrival more."""
    barrier = _at(machine, thread, address)
    barrier.pending += added
    copies = [operation for group in thread.groups for operation in group]
    released = thread.knowledge, thread.number, thread.clock
    machine.in_flight.append(LaterArrival(machine, barrier, copies, released))
    thread.clock += 1


def commit(thread: Thread, bulk: bool) -> None:
    """Close the open group."""
    (thread.bulk if bulk else thread.groups).append([])


def wait_group(thread: Thread, keep: int | None, bulk: bool, sources: bool) -> None:
    """Wait for all committed groups but the last `keep`, or for all; `sources`: only until they have been read."""
    groups = thread.bulk if bulk else thread.groups
    last = len(groups) - 1 - keep if keep is not None else len(groups)
    for group in groups[: max(last, 0)]:
        for operation in group:
            operation.complete()
            known = operation.reader.known()
            thread.acquire(known if sources else known.join(operation.actor.known()))
        if not sources:
            group.clear()
