"""Instructions at which threads of a warp or block meet: barriers, shuffles, votes, matches, reductions, elections."""

from collections.abc import Callable

from kernbench.ptx.reference.machine import Machine, Step, Thread
from kernbench.ptx.reference.order import known_together
from kernbench.ptx.reference.reader import Reader
from kernbench.ptx.reference.values import UPDATES, number, type_of
from kernbench.ptx.text.module import Name, Pair


def _warp_barrier(machine: Machine) -> Callable[[list[Thread]], None]:
    def perform(threads: list[Thread]) -> None:
        learnt = known_together((thread.knowledge, thread.number, thread.clock) for thread in threads)
        for thread in threads:
            thread.clock += 1
            thread.knowledge = learnt

    return perform


def _cluster_barrier(read: Reader) -> Step:
    """barrier.cluster: arrive, which releases, and wait, which acquires."""
    machine = read.machine
    if read.has("relaxed", "aligned"):
        raise read.unknown()
    return machine.clusters.arrive if "arrive" in read.modifiers else machine.clusters.wait


def barrier(read: Reader) -> Step:
    """bar and barrier: sync, arrive and red; bar.warp.sync."""
    machine, modifiers, count = read.machine, read.modifiers, len(read.instruction.operands)
    if "warp" in modifiers:
        (mask,), perform = read.values(0), _warp_barrier(machine)
        return lambda thread: machine.meet(thread, mask(thread) & 0xFFFFFFFF, perform)
    if "cluster" in modifiers:
        return _cluster_barrier(read)
    reduces, waits = "red" in modifiers, "arrive" not in modifiers
    first = 1 if reduces else 0
    target, operation = (read.target(), read.has("popc", "and", "or")) if reduces else (None, "")
    counted = count - first - reduces == 2
    values = read.values(*range(first, count))

    def come(threads: list[Thread]) -> None:
        votes = [bool(values[-1](thread)) if reduces else False for thread in threads]
        many = values[1](threads[0]) if counted else None
        machine.barriers.arrive(threads, values[0](threads[0]), many, waits, votes, operation, target)

    if read.instruction.opcode == "bar" or "aligned" in modifiers:
        return lambda thread: machine.meet(thread, 0xFFFFFFFF, come)

    def alone(thread: Thread) -> bool:
        come([thread])
        return thread.waits

    return alone


def shuffle(read: Reader) -> Step:
    """shfl.sync."""
    machine, mode = read.machine, read.has("up", "down", "bfly", "idx")
    a, b, c, members = read.values(1, 2, 3, 4)
    first = read.instruction.operands[0]
    target = first.first if isinstance(first, Pair) else first
    inside = first.second if isinstance(first, Pair) else None
    if not isinstance(target, Name) or not isinstance(inside, (Name, type(None))):
        raise read.unknown()

    def perform(threads: list[Thread]) -> None:
        lanes = {thread.lane: a(thread) for thread in threads}
        for thread in threads:
            source, valid = _source(thread.lane, mode, b(thread) & 31, c(thread))
            if source not in lanes:
                machine.misuse.append("a shuffle from a lane that does not take part")
            thread.registers[target.text] = lanes.get(source, 0)
            if inside is not None:
                thread.registers[inside.text] = int(valid)

    return lambda thread: machine.meet(thread, members(thread) & 0xFFFFFFFF, perform)


def _source(lane: int, mode: str, amount: int, clamp: int) -> tuple[int, bool]:
    """The lane that a shuffle reads, and whether it is in the segment; otherwise the lane reads itself."""
    segment, limit = clamp >> 8 & 31, clamp & 31
    highest = (lane & segment) | (limit & ~segment & 31)
    lowest = lane & segment
    if mode == "up":
        source = lane - amount
        valid = source >= highest
    elif mode == "idx":
        source = lowest | (amount & ~segment & 31)
        valid = source <= highest
    else:
        source = lane + amount if mode == "down" else lane ^ amount
        valid = source <= highest
    return (source, True) if valid else (lane, False)


def vote(read: Reader) -> Step:
    """vote.sync."""
    machine, mode, target = read.machine, read.has("ballot", "any", "all", "uni"), read.target()
    a, members = read.values(1, 2)

    def perform(threads: list[Thread]) -> None:
        votes = {thread.lane: a(thread) for thread in threads}
        ballot = sum(vote << lane for lane, vote in votes.items())
        truths = set(votes.values())
        result = {"ballot": ballot, "any": int(1 in truths), "all": int(0 not in truths), "uni": int(len(truths) == 1)}
        for thread in threads:
            thread.registers[target] = result[mode]

    return lambda thread: machine.meet(thread, members(thread) & 0xFFFFFFFF, perform)


def match(read: Reader) -> Step:
    """match.any and match.all (without its predicate)."""
    machine, everywhere, target = read.machine, bool(read.has("all")), read.target()
    kind = type_of(read.modifiers)
    a, members = read.values(1, 2)

    def perform(threads: list[Thread]) -> None:
        values = {thread.lane: number(a(thread), kind) for thread in threads}
        for thread in threads:
            equal = sum(1 << lane for lane, value in values.items() if value == values[thread.lane])
            complete = len(set(values.values())) == 1
            thread.registers[target] = equal if complete or not everywhere else 0

    return lambda thread: machine.meet(thread, members(thread) & 0xFFFFFFFF, perform)


def reduce(read: Reader) -> Step:
    """redux.sync."""
    machine, name, target = read.machine, read.has(*UPDATES), read.target()
    kind = type_of(read.modifiers)
    a, members = read.values(1, 2)

    def perform(threads: list[Thread]) -> None:
        total = number(a(threads[0]), kind)
        for thread in threads[1:]:
            total = UPDATES[name](total, number(a(thread), kind))
        for thread in threads:
            thread.registers[target] = total & 0xFFFFFFFF

    return lambda thread: machine.meet(thread, members(thread) & 0xFFFFFFFF, perform)


def elect(read: Reader) -> Step:
    """elect.sync: elects the lowest lane of the mask."""
    machine, pair = read.machine, read.instruction.operands[0]
    (members,) = read.values(1)
    if not isinstance(pair, Pair) or not isinstance(pair.first, Name) or not isinstance(pair.second, Name):
        raise read.unknown()
    leader, elected = pair.first.text, pair.second.text

    def perform(threads: list[Thread]) -> None:
        lowest = min(thread.lane for thread in threads)
        for thread in threads:
            thread.registers[leader] = lowest
            thread.registers[elected] = int(thread.lane == lowest)

    return lambda thread: machine.meet(thread, members(thread) & 0xFFFFFFFF, perform)
