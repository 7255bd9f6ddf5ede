"""CAS-validated loads: a load that only begins a compare-and-swap, which fails if the value is stale.

Such a load needs no order of its own. Its value may be computed with, be what a compare-and-swap of the same address
expects (and from which it computes what it stores), and decide whether its loop is repeated; nothing else. Once the
swap has found the expected value, the loaded one is as good as the swap's. Values and addresses are followed through
registers, frames and calls.
"""

from collections import deque

from kernbench.ptx.emulator.analysis.flow.dataflow import live_at_blocks
from kernbench.ptx.emulator.analysis.loads.following import Following, frame_offset, is_swap, nbytes_of, space_of
from kernbench.ptx.emulator.analysis.loads.provenance import (
    NOTHING,
    Joined,
    Node,
    State,
    Storage,
    Symbol,
    Symbols,
    Value,
)
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.access_order import Order
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.text.module import Name, Operand, Variable
from kernbench.ptx.text.walking import parts_of_call

# spaces that no other thread writes
_OWN = frozenset(("param", "local", "const"))
# program points to visit before giving up on a kernel
_PATIENCE = 2_000_000


def validated_loads(bodies: list[Body]) -> dict[int, Order]:
    """The memory order of CAS-validated loads, by site: as strong as the swap."""
    decodings = [d for body in bodies for d in body]
    widths = {nbytes_of(d) for d in decodings if is_swap(d)}
    loads = [d for d in decodings if _may_begin(d, widths)]
    if not loads or any(body.code.recursive for body in bodies) or any(_is_indirect(d) for d in decodings):
        return {}
    escaped: set[int] = set()
    while True:
        walk = _Walk(bodies, loads, escaped)
        if not walk.run():
            return {}
        if walk.escaped == escaped:
            break
        escaped = walk.escaped
    return {load.site.number: Order(scope) for load, scope in walk.good()}


def _may_begin(d: Decoding, widths: set[int]) -> bool:
    single = d.effects.access == "load" and len(d.writes) == 1 and nbytes_of(d) in widths
    return single and not d.order.scope and space_of(d) not in _OWN


def _is_indirect(d: Decoding) -> bool:
    """Whether an instruction calls through a register."""
    return d.effects.flow == "call" and parts_of_call(d.operands)[0] not in d.linker.functions


class _Context:
    """A call: the function, and where it was called from."""

    def __init__(self, number: int, body: Body, caller: "_Context | None", block: int):
        self.number, self.body, self.caller, self.block = number, body, caller, block
        self.live = live_at_blocks(body)

    def chain(self, block: int) -> list[tuple[int, int]]:
        """Contexts and blocks from the kernel to here."""
        return [*(self.caller.chain(self.block) if self.caller else []), (self.number, block)]


class _Walk:
    """All paths through a kernel, with the uses of each load's value on them."""

    def __init__(self, bodies: list[Body], loads: list[Decoding], escaped: set[int]):
        self.symbols = Symbols()
        self._bodies = {body.code.name: body for body in bodies}
        self._kernel = next(body for body in bodies if body.entry)
        self._loads = {id(d): number for number, d in enumerate(loads)}
        self._all = loads
        # contexts whose frames may be pointed to, as known before and as found
        self._known, self.escaped = escaped, set(escaped)
        self._contexts: dict[tuple[int, int], _Context] = {}
        self._numbered: list[_Context] = []
        self._joined: dict[Node, Joined] = {}
        self._pending: deque[Node] = deque()
        self._made: set[Symbol] = set()
        # loads in their contexts: each has a mark, and one for values that a later load of the same address replaced
        self._followed: list[tuple[int, Decoding]] = []
        self._marks: dict[tuple[int, int], int] = {}
        self._bad = 0
        self._swaps: dict[int, dict[tuple[int, int], int]] = {}
        self._deciding: dict[Node, int] = {}

    def run(self) -> bool:
        """Walk until nothing changes; False if it takes too long."""
        kernel = self._context(None, -1, self._kernel)
        self._arrive((kernel.number, 0), State(self.symbols, {}))
        work = 0
        while self._pending:
            node = self._pending.popleft()
            state = State(self.symbols, dict(self._joined[node].values))
            work += len(state.values) + 8
            if work > _PATIENCE:
                return False
            self._block(node, state)
        for joined in self._joined.values():
            self.let_out(*joined.lost)
        return True

    def good(self) -> list[tuple[Decoding, int]]:
        """Loads that swaps validate wherever they run, with the narrowest scope of those swaps."""
        found: dict[int, list[int]] = {}
        for number, (load, _) in enumerate(self._followed):
            found.setdefault(load, []).append(self._scope(number))
        return [(self._all[load], min(scopes)) for load, scopes in found.items() if min(scopes)]

    def _scope(self, number: int) -> int:
        """The scope of the swaps that one load begins, 0 if its value has other uses."""
        bits, swaps = 3 << 2 * number, self._swaps.get(number, {})
        if self._bad & bits or not swaps:
            return 0
        decided = [node for node, marks in self._deciding.items() if marks & bits]
        return min(swaps.values()) if all(any(self._around(at, s) for s in swaps) for at in decided) else 0

    def _around(self, deciding: Node, swap: Node) -> bool:
        """Whether a branch is in a loop that contains a swap, directly or in a called function."""
        here, there = (self._numbered[context].chain(block) for context, block in (deciding, swap))
        for (context, block), (other, home) in zip(here, there, strict=False):
            if context != other:
                return False
            if any({block, home} <= loop.blocks for loop in self._numbered[context].body.order.loops):
                return True
        return False

    def _context(self, caller: _Context | None, block: int, body: Body) -> _Context:
        key = (caller.number if caller else -1, block)
        found = self._contexts.get(key)
        if found is None:
            found = self._contexts[key] = _Context(len(self._numbered), body, caller, block)
            self._numbered.append(found)
        return found

    def _arrive(self, node: Node, state: State) -> None:
        joined = self._joined.get(node)
        if joined is None:
            self._joined[node] = Joined(self.symbols, node, state)
        elif not joined.join(state):
            return
        if node not in self._pending:
            self._pending.append(node)

    def _block(self, node: Node, state: State) -> None:
        context, block = self._numbered[node[0]], node[1]
        body = context.body
        step = Following(self, context.number, node, state)
        for d in body.decodings[block]:
            step.instruction(d)
        last = body.decodings[block][-1] if body.decodings[block] else None
        flow = last.effects.flow if last is not None else ""
        if flow == "return" or block == len(body.starts) - 1:
            self._return(context, state.copy())
        if flow == "call" and last is not None:
            self._call(context, block, last, state.copy())
            if last.instruction.guard is None:
                return
        edges = body.edges[block]
        for following in edges:
            going = state.copy()
            if flow == "branch" and last is not None and len(edges) > 1:
                going.unmark(step.proved(last, following != block + 1))
            self._go(context, following, going)

    def _go(self, context: _Context, block: int, state: State) -> None:
        """Continue at a block, without registers that are dead there."""
        live, number = context.live[block], context.number
        dead = [p for p in state.values if p[0] == "register" and p[1] == number and not live >> p[2] & 1]
        for storage in dead:
            del state.values[storage]
        self._arrive((number, block), state)

    def _call(self, context: _Context, block: int, d: Decoding, state: State) -> None:
        callee, arguments, results = parts_of_call(d.operands)
        step = Following(self, context.number, (context.number, block), state)
        body = self._bodies.get(callee)
        if body is None:
            step.unknown_call(d, arguments, results)
            self._go(context, block + 1, state)
            return
        inner = self._context(context, block, body)
        state.forget(inner.number)
        for formal, actual in zip(body.code.params, arguments, strict=True):
            nbytes, offset = formal.size or 0, frame_offset(d, actual)
            if offset is None:
                self._give(state, inner, formal, step.value(d, actual))
            else:
                self._transfer(state, (context.number, offset), inner, formal, nbytes)
        self._arrive((inner.number, 0), state)

    def _transfer(self, state: State, source: tuple[int, int], inner: _Context, formal: Variable, nbytes: int) -> None:
        """Pass an argument that is in the caller's frame."""
        target = self._formal(inner, formal)
        if isinstance(target, int):
            state.move(source, (inner.number, target), nbytes)
        else:
            self._give(state, inner, formal, state.load(*source, nbytes))

    def _give(self, state: State, inner: _Context, formal: Variable, value: Value) -> None:
        """Pass an argument by value."""
        target = self._formal(inner, formal)
        if isinstance(target, int):
            state.store(inner.number, target, formal.size or 0, value)
        else:
            state.values["register", inner.number, target.number] = value

    def _formal(self, context: _Context, formal: Variable) -> int | Register:
        """A parameter or result of a function: its frame offset, or its register."""
        code = context.body.code
        register = context.body.scope.register(formal.name) if formal.name in code.formals else None
        return code.frame[code.scope, formal.name] if register is None else register

    def _return(self, context: _Context, state: State) -> None:
        """Continue after the call, with its results."""
        if context.caller is None:
            return
        outer, block = context.caller, context.block
        d = outer.body.decodings[block][-1]
        for formal, actual in zip(context.body.code.returns, parts_of_call(d.operands)[2], strict=True):
            self._take(state, context, formal, outer, d, actual)
        state.forget(context.number)
        self._go(outer, block + 1, state)

    def _take(
        self, state: State, inner: _Context, formal: Variable, outer: _Context, d: Decoding, actual: Operand
    ) -> None:
        """Pass one result."""
        source, target, nbytes = self._formal(inner, formal), frame_offset(d, actual), formal.size or 0
        if isinstance(source, int) and target is not None:
            state.move((inner.number, source), (outer.number, target), nbytes)
            return
        if isinstance(source, int):
            value = state.load(inner.number, source, nbytes)
        else:
            value = state.values.get(("register", inner.number, source.number), NOTHING)
        register = d.scope.register(actual.text) if isinstance(actual, Name) else None
        if target is not None:
            state.store(outer.number, target, nbytes, value)
        elif register is not None:
            state.values["register", outer.number, register.number] = value

    def mark_of(self, context: int, d: Decoding) -> int:
        """The number of a load in a context, -1 if it is not followed."""
        load = self._loads.get(id(d))
        if load is None:
            return -1
        key = (context, load)
        if key not in self._marks:
            self._marks[key] = len(self._followed)
            self._followed.append((load, d))
        return self._marks[key]

    def width_of(self, number: int) -> int:
        """The size in bytes of a followed load."""
        return nbytes_of(self._followed[number][1])

    def made(self, state: State, symbol: Symbol) -> Symbol:
        """A changing symbol is defined, perhaps again."""
        if symbol in self._made:
            state.renew(symbol)
        self._made.add(symbol)
        return symbol

    def astray(self, marks: int) -> None:
        """Values have a use that no swap validates."""
        self._bad |= marks

    def swapped(self, marks: int, node: Node, scope: int) -> None:
        """Values are expected by a swap of their own address."""
        for number in range(len(self._followed)):
            if marks >> 2 * number & 1:
                self._swaps.setdefault(number, {})[node] = scope

    def decided(self, node: Node, marks: int) -> None:
        """Values decide a branch."""
        self._deciding[node] = self._deciding.get(node, 0) | marks

    def let_out(self, *symbols: Symbol) -> None:
        """Addresses of frames escape."""
        for symbol in symbols:
            frame = self.symbols.frame(symbol)
            if frame is not None:
                self.escaped.add(frame[0])

    def open(self, storage: Storage) -> bool:
        """Whether storage may be accessed through an escaped address."""
        return storage[0] == "frame" and storage[1] in self._known
