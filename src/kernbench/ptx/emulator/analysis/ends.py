"""What ends a loop: the values it reads that decide, and carried registers that only count its iterations."""

from collections.abc import Iterable, Set

from kernbench.ptx.emulator.analysis.flow.dataflow import bits
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding

_LEAVING = frozenset(("return", "exit", "trap"))
_CONSTANT = frozenset(("param", "const"))
_SHARED = frozenset(("shared", "generic", ""))


class Ends:
    """The exits of one loop with these `blocks`; `live` is liveness at blocks, `called` the instructions it calls."""

    def __init__(self, body: Body, blocks: Set[int], live: list[int], called: list[Decoding]):
        self._own = [d for block in sorted(blocks) for d in body.decodings[block]]
        self._called = called
        # the exits: branches out of the loop, and exits inside it
        self._leaving = {body.decodings[b][-1].site.number for b in blocks if _leaves(body, b, blocks)}
        self._leaving |= {d.site.number for d in self._own if d.effects.flow in _LEAVING}
        self._wanted_behind = 0
        for block in blocks:
            for following in body.edges[block]:
                self._wanted_behind |= 0 if following in blocks else live[following]

    def decided_by(self, polls: Iterable[Decoding]) -> frozenset[int]:
        """Numbers of those instructions `polls` whose results influence the loop's control flow.

        Values stored to shared memory inside the loop come back by loads from it: one thread polls for its block.
        Everything that a called function reads may count.
        """
        wanted = bits(r for d in self._own if d.effects.flow and d.effects.flow != "call" for r in d.reads)
        before = -1
        while wanted != before:
            before = wanted
            for d in self._own:
                if not bits(d.writes) & wanted:
                    continue
                if d.effects.access == "load" and _may_be_shared(d):
                    wanted |= bits(r for other in self._own if _stores_to_shared(other) for r in other.reads)
                if d.effects.access not in ("load", "atomic"):
                    wanted |= bits(d.reads)
        own = {d.site.number for d in self._own if bits(d.writes) & wanted}
        return frozenset(d.site.number for d in polls if d.site.number in own or d in self._called)

    def only_by(self, looks: Iterable[Decoding]) -> bool:
        """Whether the loop ends by the results of `looks` alone, and nothing else that differs between iterations.

        Every branch out of it must depend on such a value; everything else it depends on must come from outside the
        loop.
        """
        looks = list(looks)
        given = self._made_of(bits(r for d in looks for r in d.writes))
        leaving = [d for d in self._own if d.site.number in self._leaving and d.effects.flow not in _LEAVING]
        if len(leaving) != len(self._leaving) or not all(bits(d.reads) & given for d in leaving):
            return False
        return not self._behind(leaving, looks) & self._varying(given)

    def _made_of(self, registers: int) -> int:
        """Registers that the loop computes from some registers, and those themselves."""
        before = 0
        while registers != before:
            before = registers
            registers |= bits(r for d in self._own if bits(d.reads) & registers for r in d.writes)
        return registers

    def _behind(self, wanting: Iterable[Decoding], looks: list[Decoding]) -> int:
        """Registers that some instructions depend on within the loop (a backward slice), but not through `looks`."""
        wanted, before = bits(r for d in wanting for r in d.reads), -1
        while wanted != before:
            before = wanted
            wanted |= bits(r for d in self._own if d not in looks and bits(d.writes) & wanted for r in d.reads)
        return wanted

    def _varying(self, given: int) -> int:
        """Registers that the loop writes, except `given`, that may differ between iterations."""
        writers = [(d, bits(d.writes) & ~given) for d in self._own if bits(d.writes) & ~given]
        varying, before = bits(r for d in self._own for r in d.writes) & ~given, -1
        while varying != before:
            before = varying
            changing = [w for d, w in writers if not _follows(d) or bits(d.reads) & varying]
            varying = 0
            for registers in changing:
                varying |= registers
        return varying

    def only_counts(self, register: int) -> bool:
        """Whether only the loop's exit, and the duration of its sleeps, depend on a register."""
        touched, before = 1 << register, 0
        while touched != before:
            before = touched
            for d in self._own:
                if not bits(d.reads) & touched or d.effects.event == "sleep" or d.site.number in self._leaving:
                    continue
                if not d.effects.computes:
                    return False
                touched |= bits(d.writes)
        return not touched & self._wanted_behind


def _leaves(body: Body, block: int, blocks: Set[int]) -> bool:
    return bool(body.decodings[block]) and any(following not in blocks for following in body.edges[block])


def _follows(d: Decoding) -> bool:
    """Whether its result is a function of its operands: it computes, or reads constant memory."""
    return d.effects.computes or (d.effects.access == "load" and d.mod("space").partition("::")[0] in _CONSTANT)


def _may_be_shared(d: Decoding) -> bool:
    return (d.address_space or d.mod("space").partition("::")[0]) in _SHARED


def _stores_to_shared(d: Decoding) -> bool:
    return d.effects.access == "store" and _may_be_shared(d)
