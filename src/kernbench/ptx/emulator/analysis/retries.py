"""Waits that are retried until they succeed: a try_wait whose failure leads straight back to it.

Such a wait may park its lanes. One whose result is ignored, or used otherwise, may fail at any time, and does so unless
the phase has completed.
"""

from collections.abc import Callable
from operator import and_, eq, ge, gt, le, lt, ne, or_, xor
from typing import Any

from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.text.module import Integer, Name, Not, Operand

_LONGEST_WAY = 8
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {"eq": eq, "ne": ne, "lt": lt, "le": le, "gt": gt, "ge": ge}
_LOGIC: dict[str, Callable[[int, int], int]] = {"and": and_, "or": or_, "xor": xor}
# cost classes of instructions that only compute a value
_PURE = frozenset(("int", "float", "half", "convert"))


def is_retried(body: Any, start: int, wait: Decoding) -> bool:
    """Whether control returns to a wait when it fails, without side effects in between."""
    return _Way(body, wait).returns(start)


class _Way:
    """The path from a failed wait, with known register values."""

    def __init__(self, body: Any, wait: Decoding):
        self._body = body
        self._wait = wait
        self._known: dict[int, int] = {register.number: 0 for register in wait.writes}

    def returns(self, start: int) -> bool:
        """Follow the path."""
        block: int | None = start + 1
        for _ in range(_LONGEST_WAY):
            if block is None or block >= len(self._body.decodings):
                return False
            following: int | None = block + 1
            for decoding in self._body.decodings[block]:
                if decoding is self._wait:
                    return True
                if decoding.effects.flow == "branch":
                    following = self._branch(decoding, block)
                elif not self._pass(decoding):
                    return False
            block = following
        return False

    def _branch(self, decoding: Decoding, block: int) -> int | None:
        target = decoding.label(str(decoding.operands[0].text)) - self._body.code.entry  # type: ignore[union-attr]
        taken = self._guard(decoding)
        if taken is None:
            return None
        return target if taken else block + 1

    def _guard(self, decoding: Decoding) -> bool | None:
        """Whether an instruction runs; None if unknown."""
        guard = decoding.instruction.guard
        if guard is None:
            return True
        value = self._register(guard.register, decoding)
        return None if value is None else bool(value) != guard.negated

    def _register(self, name: str, decoding: Decoding) -> int | None:
        register = decoding.scope.register(name)
        return None if register is None else self._known.get(register.number)

    def _value(self, operand: Operand, decoding: Decoding) -> int | None:
        if isinstance(operand, Integer):
            return operand.value
        if isinstance(operand, Name):
            return self._register(operand.text, decoding)
        if isinstance(operand, Not):
            value = self._register(operand.operand.text, decoding)
            return None if value is None else int(not value)
        return None

    def _pass(self, decoding: Decoding) -> bool:
        """Apply an instruction; False if it has a side effect."""
        if not decoding.effects.idle and decoding.resolved.form.cost not in _PURE:
            return False
        runs = self._guard(decoding)
        result = self._result(decoding) if runs else None
        for register in decoding.writes if runs is not False else ():
            self._known.pop(register.number, None)
            if result is not None:
                self._known[register.number] = result
        return True

    def _result(self, decoding: Decoding) -> int | None:
        law = decoding.effects.law
        values = [self._value(operand, decoding) for operand in decoding.operands[1:]]
        if law == "select":
            return values[0 if values[2] else 1] if values[2] is not None else None
        if any(value is None for value in values) or len(decoding.writes) != 1:
            return None
        known = [value for value in values if value is not None]
        if law == "compare" and decoding.mod("cmp") in _COMPARISONS and len(known) == 2:
            return int(_COMPARISONS[decoding.mod("cmp")](*known))
        if law in _LOGIC:
            return _LOGIC[law](*known)
        if law == "not" and decoding.mod("type") == "pred":
            return int(not known[0])
        return known[0] if law in ("copy", "convert") else None
