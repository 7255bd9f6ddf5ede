"""Branches by which lanes compute one value or another, as a selection would.

Between such a branch and the block where its paths join, instructions only compute registers, perhaps by functions that
do nothing else. If its predicate is undefined, so are the registers that either path writes; nothing else has been
decided.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kernbench.ptx.emulator.analysis.flow.dominance import branch_region
from kernbench.ptx.emulator.analysis.undefined.copying import key_of, lose, undefined
from kernbench.ptx.emulator.analysis.undefined.pure import calls_one_of, passes_values
from kernbench.ptx.emulator.analysis.undefined.tables import table_loads
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.observer.origins import is_followed
from kernbench.ptx.emulator.program.facts import Pure
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import Step, action
from kernbench.ptx.emulator.units.batch import Window

# blocks between a branch and the block where its paths join
_MOST_BLOCKS = 128


@dataclass(frozen=True, slots=True)
class Choice:
    """The predicate of a branch, and the registers that its paths write."""

    predicate: Register
    written: tuple[Register, ...]


@dataclass(frozen=True)
class Choices:
    """The choices of a function; `catches` says of which instructions the results may be undefined by themselves."""

    body: Body
    catches: Callable[[Decoding], bool]
    # functions that only compute their results
    pure: Mapping[str, Pure] = field(default_factory=dict)
    _under: dict[int, list[Register]] = field(default_factory=dict)

    def at(self, block: int) -> Choice | None:
        """The choice that a block ends with, None if it ends with none."""
        return self._found.get(block)

    def above(self, block: int) -> tuple[Register, ...]:
        """The predicates of choices that a block lies between, and the register that says which lanes have strayed."""
        strayed = self.own.strayed
        outer = () if strayed is None else (strayed,)
        return (*self._under.get(block, ()), *outer) if self._found else outer

    @cached_property
    def own(self) -> Pure:
        """What is known of the function itself, if it only computes."""
        return self.pure.get(self.body.code.name, Pure())

    @cached_property
    def tables(self) -> dict[int, Register]:
        """By site of a load from a constant table, the register with its address."""
        return table_loads(self.body)

    @cached_property
    def _found(self) -> dict[int, Choice]:
        edges = dict(enumerate(self.body.edges))
        found = {}
        for block, decodings in enumerate(self.body.decodings):
            predicate = _predicate(decodings[-1]) if decodings else None
            region = branch_region(edges, block) if predicate is not None else None
            if predicate is None or region is None or region[0] is None or not self._is_choice(block, region[1]):
                continue
            inside = [decoding for one in sorted(region[1]) for decoding in self.body.decodings[one]]
            written = tuple(dict.fromkeys(register for decoding in inside for register in decoding.writes))
            if predicate in written:
                continue
            found[block] = Choice(predicate, written)
            for one in region[1]:
                self._under.setdefault(one, []).append(predicate)
        return found

    def _is_choice(self, block: int, inside: set[int]) -> bool:
        """Whether the blocks only compute, and are reached from this block alone."""
        if not 0 < len(inside) <= _MOST_BLOCKS:
            return False
        outside = (after for one, after in enumerate(self.body.edges) if one != block and one not in inside)
        if any(one in inside for after in outside for one in after):
            return False
        return all(self._computes(decoding) for one in inside for decoding in self.body.decodings[one])

    def _computes(self, decoding: Decoding) -> bool:
        if decoding.effects.computes:
            return not self.catches(decoding)
        called = calls_one_of(decoding, self.pure) or (bool(self.pure) and passes_values(decoding, self.body))
        return decoding.effects.flow == "branch" or called or decoding.site.number in self.tables


def _predicate(decoding: Decoding) -> Register | None:
    """The predicate of a branch that some lanes may take."""
    guard = decoding.instruction.guard
    if decoding.effects.flow != "branch" or guard is None:
        return None
    return decoding.scope.register(guard.register)


def choose(decoding: Decoding, choice: Choice) -> Step:
    """A step before a branch: what its paths write is undefined in lanes whose predicate is."""
    site, key = decoding.site, key_of(choice.predicate)
    targets = tuple(map(key_of, choice.written))

    def general(window: Window, mask: Mask | None) -> None:
        bad = undefined(window, choice.predicate)
        if bad is not None and mask is not None:
            bad = bad & mask
        if bad is None or not bad.any():
            return
        definedness = window.batch.checks.definedness
        origin = definedness.origins.get(key)
        if not is_followed(origin):
            window.batch.checks.undefined.used(window, site, choice.predicate.name, "guard", bad, key)
            return
        for register in choice.written:
            lose(window, register, bad, mask)
        definedness.pass_on(window, (key,), targets)

    return action(general)
