"""Detection of uninitialised registers: a forward data-flow analysis over a finished body.

A register is set at a point if it is set on every path to it. One that is set under a guard is set for later
instructions under the same guard, as long as its predicate does not change, and for all once it is set under the
inverted guard, too.
"""

from collections.abc import Iterable

from kernbench.ptx.builder.issuing.body import Body, Entry
from kernbench.ptx.builder.values.errors import PtxBuildError
from kernbench.ptx.isa.table import flow_of
from kernbench.ptx.text.module import Instruction, Label, Name

__kernbench_internal__ = True

# a register that is set if a predicate has a value
Conditional = tuple[str, str, bool]
# flows after which the next statement is not reached
_ENDS = frozenset(("return", "exit", "trap"))


def check_assigned(body: Body) -> None:
    """Raise an error for the first instruction that reads a register which may not be set."""
    blocks = _blocks(body.entries)
    states = _states(blocks)
    for block, state in zip(blocks, states, strict=True):
        if state is None:
            continue
        for entry in block.entries:
            _check(entry, state)
            _advance(entry, state)


class _State:
    """The registers that are set, and those that are set if a predicate has a value."""

    def __init__(self, names: Iterable[str] = (), conditional: Iterable[Conditional] = ()) -> None:
        self.names = set(names)
        self.conditional = set(conditional)

    def copy(self) -> "_State":
        return _State(self.names, self.conditional)

    def meet(self, other: "_State") -> bool:
        """Intersect with another state; returns whether anything was removed."""
        before = len(self.names) + len(self.conditional)
        self.names &= other.names
        self.conditional &= other.conditional
        return len(self.names) + len(self.conditional) < before


class _Block:
    """A basic block: its statements, and its successors."""

    def __init__(self, entries: list[Entry]):
        self.entries = entries
        self.following: list[int] = []


def _blocks(entries: list[Entry]) -> list[_Block]:
    blocks: list[_Block] = [_Block([])]
    homes: dict[str, int] = {}
    for entry in entries:
        statement = entry.statement
        if isinstance(statement, Label):
            blocks.append(_Block([]))
            homes[statement.name] = len(blocks) - 1
        blocks[-1].entries.append(entry)
        flow = flow_of(statement.opcode) if isinstance(statement, Instruction) else ""
        if flow == "branch" or flow in _ENDS:
            blocks.append(_Block([]))
    for number, block in enumerate(blocks):
        block.following = [n for n in _following(block, number, homes) if n < len(blocks)]
    return blocks


def _following(block: _Block, number: int, homes: dict[str, int]) -> list[int]:
    last = block.entries[-1].statement if block.entries else None
    if not isinstance(last, Instruction):
        return [number + 1]
    found = []
    flow = flow_of(last.opcode)
    if flow == "branch":
        (target,) = last.operands
        assert isinstance(target, Name)
        found.append(homes[target.text])
    elif flow not in _ENDS:
        return [number + 1]
    return [*found, number + 1] if last.guard is not None else found


def _states(blocks: list[_Block]) -> list[_State | None]:
    """The state at the beginning of each block; None for unreachable ones."""
    states: list[_State | None] = [None] * len(blocks)
    states[0] = _State()
    waiting = [0]
    while waiting:
        number = waiting.pop()
        begins = states[number]
        assert begins is not None
        state = begins.copy()
        for entry in blocks[number].entries:
            _advance(entry, state)
        for following in blocks[number].following:
            known = states[following]
            if known is None:
                states[following] = state.copy()
                waiting.append(following)
            elif known.meet(state):
                waiting.append(following)
    return states


def _advance(entry: Entry, state: _State) -> None:
    """Update the state for one statement."""
    guard = entry.statement.guard if isinstance(entry.statement, Instruction) else None
    for name in entry.writes:
        # facts that depend on a predicate's old value end when it changes
        if name.startswith("%p"):
            state.conditional = {fact for fact in state.conditional if fact[1] != name}
        if guard is None or (name, guard.register, not guard.negated) in state.conditional:
            state.names.add(name)
        else:
            state.conditional.add((name, guard.register, guard.negated))
    state.names.difference_update(entry.forgets)


def _check(entry: Entry, state: _State) -> None:
    statement = entry.statement
    guard = statement.guard if isinstance(statement, Instruction) else None
    for name in entry.reads:
        if name in state.names or (guard is not None and (name, guard.register, guard.negated) in state.conditional):
            continue
        if guard is not None and name == guard.register:
            raise PtxBuildError(f"the predicate {name} is used before it is set", entry.where)
        what = statement.name if isinstance(statement, Instruction) else "this"
        raise PtxBuildError(
            f"{what} reads {name}, which is not set on every path that leads here: set it before the branch or loop, "
            "and change it there with += or .set (x = x + y makes another register)",
            entry.where,
        )
