"""What each instruction does to a thread: one small function per family, and a table of them.

A step is called with the thread, whose `pc` already points to the next instruction. It returns something true if the
thread waits, has exited, or polled in vain and should let others run.
"""

from collections.abc import Callable

from kernbench.ptx.isa.resolve import resolve
from kernbench.ptx.reference import asynchronous, warp
from kernbench.ptx.reference.machine import CLUSTER_WINDOW, Machine, Step, Thread
from kernbench.ptx.reference.program import names_of
from kernbench.ptx.reference.reader import Reader, Value
from kernbench.ptx.reference.values import BINARY, COMPARISONS, UNARY, UPDATES, number, type_of
from kernbench.ptx.text.types import TYPES, ScalarType

_ORDERS = ("relaxed", "acquire", "release", "acq_rel", "volatile", "sc")


def steps_of(machine: Machine) -> list[Step]:
    """The steps of a machine's program; after the last one threads exit."""
    instructions = machine.program.instructions
    if any(type_of(i.modifiers).nbytes < 4 for i in instructions if resolve(i).effects.access):
        machine.granule = 1
    return [*(_guarded(Reader(machine, one)) for one in instructions), machine.end]


def _guarded(read: Reader) -> Step:
    """The step of an instruction, which does nothing if its guard is false."""
    instruction = read.instruction
    make = STEPS.get(instruction.opcode)
    if make is None:
        raise read.unknown()
    step, guard = make(read), instruction.guard
    if guard is None:
        return step
    register, wanted = guard.register, 0 if guard.negated else 1
    return lambda thread: step(thread) if thread.registers.get(register, 0) == wanted else None


def _compute(read: Reader) -> Step:
    """Arithmetic: operands converted by the type, the result truncated to the destination's width."""
    kind, opcode = type_of(read.modifiers), read.instruction.opcode
    form = read.has("lo", "hi", "wide")
    name = f"{opcode}.{form}" if form else opcode
    width = 2 * kind.bits if form == "wide" else 32 if opcode in ("popc", "clz") else kind.bits
    target, mask = read.target(), (1 << width) - 1
    operands = read.values(*range(1, len(read.instruction.operands)))
    compute = _function(name, kind, operands)

    def step(thread: Thread) -> None:
        thread.registers[target] = compute(thread) & mask

    return step


def _function(name: str, kind: ScalarType, operands: list[Value]) -> Value:
    first = operands[0]
    if name in UNARY:
        unary = UNARY[name]
        return lambda thread: unary(number(first(thread), kind), kind)
    binary, second = BINARY[name], operands[1]
    if name in ("shl", "shr"):
        # the shift amount is u32, whatever the type
        return lambda thread: binary(number(first(thread), kind), second(thread) & 0xFFFFFFFF, kind)
    return lambda thread: binary(number(first(thread), kind), number(second(thread), kind), kind)


def _multiply_add(read: Reader) -> Step:
    """mad.lo and mad.wide."""
    kind, wide = type_of(read.modifiers), bool(read.has("wide"))
    if not read.has("lo", "wide"):
        raise read.unknown()
    result = TYPES[f"{kind.kind}{2 * kind.bits}"] if wide else kind
    (a, b, c), target, mask = read.values(1, 2, 3), read.target(), (1 << result.bits) - 1

    def step(thread: Thread) -> None:
        product = number(a(thread), kind) * number(b(thread), kind)
        thread.registers[target] = product + number(c(thread), result) & mask

    return step


def _logic(read: Reader) -> Step:
    """lop3: bit i of the table, for the three bits that form i."""
    (a, b, c, table), target = read.values(1, 2, 3, 4), read.target()

    def step(thread: Thread) -> None:
        bits = [value(thread) for value in (a, b, c)]
        chosen = [sum((bits[k] >> i & 1) << (2 - k) for k in range(3)) for i in range(32)]
        thread.registers[target] = sum((table(thread) >> which & 1) << i for i, which in enumerate(chosen))

    return step


def _compare(read: Reader) -> Step:
    """setp, with one result."""
    kind, compare, target = type_of(read.modifiers), COMPARISONS[read.modifiers[0]], read.target()
    a, b = read.values(1, 2)

    def step(thread: Thread) -> None:
        thread.registers[target] = int(compare(number(a(thread), kind), number(b(thread), kind)))

    return step


def _select(read: Reader) -> Step:
    """selp."""
    (a, b, p), target, mask = read.values(1, 2, 3), read.target(), (1 << type_of(read.modifiers).bits) - 1

    def step(thread: Thread) -> None:
        thread.registers[target] = (a if p(thread) else b)(thread) & mask

    return step


def _convert(read: Reader) -> Step:
    """cvt between integers."""
    to, source = (TYPES[name] for name in read.modifiers if name in TYPES)
    if read.has("sat") or "f" in to.kind + source.kind:
        raise read.unknown()
    (a,), target = read.values(1), read.target()

    def step(thread: Thread) -> None:
        value = number(number(a(thread), source), to)
        # narrow results are sign- or zero-extended to the register
        thread.registers[target] = value & (1 << max(32, to.bits)) - 1

    return step


def _address(read: Reader) -> Step:
    """cvta of global memory, whose addresses are the same as generic ones."""
    if not read.has("global"):
        raise read.unknown()
    (a,), target = read.values(1), read.target()

    def step(thread: Thread) -> None:
        thread.registers[target] = a(thread)

    return step


def _load(read: Reader) -> Step:
    """ld, weak or strong; narrow values are sign- or zero-extended to the register."""
    kind, space, machine = type_of(read.modifiers), read.space, read.machine
    order, address, target = read.has(*_ORDERS), read.address(1), read.target()
    scope, nbytes = read.scope if order else 0, kind.nbytes

    def step(thread: Thread) -> None:
        at = address(thread)
        data = machine.read(space, thread, at, nbytes)
        if space in ("shared", "global"):
            _access(machine, thread, space, at, nbytes, scope, order, True, False, False, read.line)
        value = number(int.from_bytes(data, "little"), kind)
        thread.registers[target] = value & (1 << max(32, kind.bits)) - 1

    return step


def _store(read: Reader) -> Step:
    """st, weak or strong."""
    kind, space, machine = type_of(read.modifiers), read.space, read.machine
    order, address, (value,) = read.has(*_ORDERS), read.address(0), read.values(1)
    scope, nbytes = read.scope if order else 0, kind.nbytes
    if "async" in read.modifiers:
        return _send(read)

    def step(thread: Thread) -> None:
        at = address(thread)
        data = (value(thread) & (1 << kind.bits) - 1).to_bytes(nbytes, "little")
        same = machine.write(space, thread, at, data)
        if space in ("shared", "global"):
            _access(machine, thread, space, at, nbytes, scope, order, False, True, same, read.line)

    return step


def _send(read: Reader) -> Step:
    """st.async of one value, and red.async, whose updates are strong at cluster scope."""
    kind, address, (value,), mbarrier = type_of(read.modifiers), read.address(0), read.values(1), read.address(2)
    reduces = read.instruction.opcode == "red"
    update, scope = (UPDATES[read.has(*UPDATES)], read.scope) if reduces else (None, 0)

    def step(thread: Thread) -> object:
        if asynchronous.awaited(read.machine, thread, mbarrier(thread)):
            return True
        given = number(value(thread), kind)

        def new(held: bytes) -> bytes:
            found = given if update is None else update(number(int.from_bytes(held, "little"), kind), given)
            return (found & (1 << kind.bits) - 1).to_bytes(kind.nbytes, "little")

        asynchronous.send(read.machine, thread, address(thread), kind.nbytes, new, scope, mbarrier(thread), read.line)
        return None

    return step


def _map(read: Reader) -> Step:
    """mapa: a shared memory address in the block of a rank."""
    (a, rank), target = read.values(1, 2), read.target()

    def step(thread: Thread) -> None:
        thread.registers[target] = (rank(thread) + 1) * CLUSTER_WINDOW + a(thread) % CLUSTER_WINDOW

    return step


def _access(
    machine: Machine, thread: Thread, space: str, at: int, nbytes: int,
    scope: int, order: str, reads: bool, writes: bool, same: bool, line: int, blind: bool = False,
) -> None:  # fmt: skip
    """Record an access. What a strong read acquires is ordered before it, what a strong write releases after it.

    A `blind` one does not acquire: an update whose result is unused might as well precede those that it follows.
    """
    key = (space, *(machine.home(thread, at) if space == "shared" else (-1, at)))
    if scope and reads and not blind:
        machine.patterns.read(thread, key, scope, order in ("acquire", "acq_rel"))
    access = machine.note(thread, space, at, nbytes, writes, scope, same, line)
    if scope and writes:
        machine.patterns.write(access, key, order in ("release", "acq_rel"), reads)


def _update(read: Reader) -> Step:
    """atom and red; without an order relaxed, without a scope that of the GPU."""
    if "async" in read.modifiers:
        return _send(read)
    kind, space, machine = type_of(read.modifiers), read.space, read.machine
    order, scope, name = read.has(*_ORDERS) or "relaxed", read.scope, read.has(*UPDATES, "cas")
    first = 1 if read.instruction.opcode == "atom" else 0
    target = read.target() if first else None
    address, operands = read.address(first), read.values(*range(first + 1, len(read.instruction.operands)))
    blind = target is None or _mentions(machine, target) == 1
    if not name:
        raise read.unknown()

    def step(thread: Thread) -> None:
        at, given = address(thread), [number(value(thread), kind) for value in operands]
        bits = int.from_bytes(machine.read(space, thread, at, kind.nbytes), "little")
        old = number(bits, kind)
        new = (given[1] if old == given[0] else old) if name == "cas" else UPDATES[name](old, given[0])
        data = (new & (1 << kind.bits) - 1).to_bytes(kind.nbytes, "little")
        machine.write(space, thread, at, data)
        _access(machine, thread, space, at, kind.nbytes, scope, order, True, True, False, read.line, blind)
        if target is not None:
            thread.registers[target] = bits

    return step


def _mentions(machine: Machine, register: str) -> int:
    """The number of instructions that name a register."""
    return sum(register in names_of(one) for one in machine.program.instructions)


def _branch(read: Reader) -> Step:
    destination = read.machine.program.labels[read.target()]

    def step(thread: Thread) -> None:
        thread.pc = destination

    return step


def _fence(read: Reader) -> Step:
    """fence and membar; fence.proxy.async makes known writes visible to asynchronous operations."""
    machine, sem, scope = read.machine, read.has("acquire", "release"), read.scope
    if read.has("proxy"):
        kinds = read.has("async", "async.shared::cta", "async.global")
        space = [name.partition("::")[0] for name in read.modifiers if name.partition("::")[0] in ("shared", "global")]
        if not kinds:
            raise read.unknown()
        return lambda thread: thread.show(tuple(space) or ("shared", "global"))
    return lambda thread: machine.patterns.fence(thread, scope, sem != "release", sem != "acquire")


def _mbarrier(read: Reader) -> Step:
    """init, arrive (with a count, with expected bytes), expect_tx, complete_tx, test_wait and try_wait."""
    operation = read.has("init", "inval", "arrive", "expect_tx", "complete_tx", "test_wait", "try_wait")
    operands, machine, line = read.instruction.operands, read.machine, read.line
    position = 0 if operation in ("init", "inval", "expect_tx", "complete_tx") else 1
    address, releases = read.address(position), "relaxed" not in read.modifiers
    value = read.value(operands[position + 1]) if len(operands) > position + 1 else None
    target = read.target() if position else "_"

    def step(thread: Thread) -> object:
        given = None if value is None else value(thread)
        at = address(thread)
        if operation != "init" and asynchronous.awaited(machine, thread, at):
            return True
        if operation == "init":
            asynchronous.init(machine, thread, at, given or 0)
        elif operation == "arrive":
            expected = (given or 0) if "expect_tx" in read.modifiers else 0
            many = 1 if given is None or "expect_tx" in read.modifiers else given
            thread.registers[target] = asynchronous.arrive(machine, thread, at, many, expected, releases)
        elif operation in ("expect_tx", "complete_tx"):
            asynchronous.transact(machine, thread, at, (given or 0) * (1 if operation == "expect_tx" else -1))
        elif operation != "inval":
            parity = "parity" in read.modifiers
            passed = asynchronous.wait(machine, thread, at, given or 0, parity, releases)
            thread.registers[target] = int(passed)
            return not passed
        return None

    if line and operation == "":
        raise read.unknown()
    return step


def _copy(read: Reader) -> Step:
    """cp.async with its groups and arrivals, and bulk copies."""
    machine, bulk = read.machine, "bulk" in read.modifiers
    if "mbarrier" in read.modifiers:
        barrier_address, added = read.address(0), "noinc" not in read.modifiers

        def arrive(thread: Thread) -> object:
            at = barrier_address(thread)
            if asynchronous.awaited(machine, thread, at):
                return True
            asynchronous.arrive_later(machine, thread, at, added)
            return None

        return arrive
    if read.has("commit_group"):
        return lambda thread: asynchronous.commit(thread, bulk)
    if read.has("wait_group", "wait_all"):
        keep = read.value(read.instruction.operands[0])(machine.threads[0]) if read.instruction.operands else None
        sources = "read" in read.modifiers
        return lambda thread: asynchronous.wait_group(thread, keep, bulk, sources)
    if not bulk:
        return _lane_copy(read)
    to, source, size = read.address(0), read.address(1), read.value(read.instruction.operands[2])
    spaces = [name.partition("::")[0] for name in read.modifiers if name.partition("::")[0] in ("shared", "global")]
    barrier = read.address(3) if len(read.instruction.operands) > 3 else None
    blocks = read.value(read.instruction.operands[4]) if "multicast::cluster" in read.modifiers else None

    def begin(thread: Thread) -> None:
        addresses, mbarrier = (to(thread), source(thread)), None if barrier is None else barrier(thread)
        if blocks is None or mbarrier is None:
            asynchronous.copy(machine, thread, (spaces[0], spaces[1]), addresses, size(thread), mbarrier, read.line)
            return
        # one copy for each block of the mask: to the same offset there, counted by the mbarrier at the same offset
        for rank in (rank for rank in range(machine.cluster) if blocks(thread) >> rank & 1):
            there, counter = (machine.in_block(rank, at) for at in (addresses[0], mbarrier))
            pair = there, addresses[1]
            asynchronous.copy(machine, thread, (spaces[0], spaces[1]), pair, size(thread), counter, read.line)

    return begin


def _lane_copy(read: Reader) -> Step:
    """cp.async: reads fewer bytes if src-size says so, none if its predicate holds; the rest is zero."""
    machine, operands = read.machine, read.instruction.operands
    to, source, size = read.address(0), read.address(1), read.value(operands[2])
    limit = resolve(read.instruction).operand("src_size")
    left = size if limit is None else read.value(operands[limit])
    if limit is not None and read.is_predicate(operands[limit]):
        ignored = left
        left = lambda thread: 0 if ignored(thread) else size(thread)  # noqa: E731

    def begin(thread: Thread) -> None:
        nbytes, taken = size(thread), min(left(thread), size(thread))
        asynchronous.copy_lane(machine, thread, (to(thread), source(thread)), nbytes, taken, read.line)

    return begin


def _end(read: Reader) -> Step:
    return read.machine.end


STEPS: dict[str, Callable[[Reader], Step]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "min", "max", "abs", "neg", "popc", "clz", "brev"), _compute),
    **dict.fromkeys(("and", "or", "xor", "not", "shl", "shr", "mov"), _compute),
    **dict.fromkeys(("ret", "exit"), _end),
    **dict.fromkeys(("atom", "red"), _update),
    **dict.fromkeys(("fence", "membar"), _fence),
    **dict.fromkeys(("bar", "barrier"), warp.barrier),
    "mad": _multiply_add,
    "lop3": _logic,
    "setp": _compare,
    "selp": _select,
    "cvt": _convert,
    "cvta": _address,
    "mapa": _map,
    "ld": _load,
    "st": _store,
    "bra": _branch,
    "shfl": warp.shuffle,
    "vote": warp.vote,
    "match": warp.match,
    "redux": warp.reduce,
    "elect": warp.elect,
    "mbarrier": _mbarrier,
    "cp": _copy,
}
