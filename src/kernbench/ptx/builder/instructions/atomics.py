"""Atomics and reductions in memory."""

from collections.abc import Sequence
from typing import Unpack

from kernbench.ptx.builder.instructions.memory import Memory
from kernbench.ptx.builder.values.banks import bits_of, scalar
from kernbench.ptx.builder.values.numbers import needs_register
from kernbench.ptx.builder.values.options import Atomic, Condition, Registers, Scoped, Targets, Value, Values, Where
from kernbench.ptx.builder.values.pointer import Location
from kernbench.ptx.builder.values.values import Register

__kernbench_internal__ = True

# operations on untyped bits
_BITS = frozenset(("and", "or", "xor", "exch", "cas"))
_PACKED = frozenset(("f16", "bf16", "f16x2", "bf16x2"))


class Atomics(Memory):
    """Read-modify-write of memory; `sem`, `scope` and `policy` as in PTX, `pred` is a guard."""

    def atom(
        self,
        op: str,
        where: Where,
        *values: Values,
        index: Value | None = None,
        type: str | None = None,
        pred: Condition | None = None,
        out: Targets = None,
        **how: Unpack[Scoped],
    ) -> Registers:
        """Apply `op` (add, min, max, inc, dec, and, or, xor, exch, cas) and return the old value.

        `cas` takes the value to compare with and the new one. A tuple is a vector of adjacent values.
        """
        location, slots, given, found = self._atomic(op, where, values, index, type, how)
        return self.issue("atom", slots, (location, *given), out=out, pred=pred, keep=found)

    def red(
        self,
        op: str,
        where: Where,
        value: Values,
        *,
        index: Value | None = None,
        type: str | None = None,
        pred: Condition | None = None,
        **how: Unpack[Scoped],
    ) -> None:
        """Apply `op` without returning the old value."""
        location, slots, given, _ = self._atomic(op, where, (value,), index, type, how)
        self.issue("red", slots, (location, *given), pred=pred)

    def _atomic(
        self, op: str, where: Where, values: tuple[Values, ...], index: Value | None, type: str | None, how: Scoped
    ) -> tuple[Location, dict[str, object], tuple[Values, ...], str]:
        if type is None and isinstance(where, Register):
            type = next((value.type for value in values if isinstance(value, Register)), None)
        location, found = self.location_and_type(where, index, type)
        policy = how.pop("policy", None)
        slots: dict[str, object] = {
            **how,
            "space": location.space or None,
            "op": op,
            "type": _operation_type(op, found),
        }
        vector = next((len(value) for value in values if isinstance(value, (tuple, list))), 0)
        if vector:
            slots["vec"] = f"v{vector}"
        if found in _PACKED and op not in _BITS:
            slots["noftz"] = True
        if policy is not None:
            slots["hint"] = "L2::cache_hint"
        given = tuple(self._given(found, value) for value in values)
        return location, slots, (*given, *(() if policy is None else (policy,))), found

    def _given(self, type: str, value: Values) -> Values:
        if isinstance(value, Sequence):
            return tuple(self._one(type, each) for each in value)
        return self._one(type, value)

    def _one(self, type: str, value: Value) -> Value:
        stored = self._stored(type, value)
        if isinstance(stored, Register):
            return stored
        # an untyped operand takes no float literal
        return stored if scalar(type).kind not in "fx" or needs_register(type) else self.const(stored, type)

    def atom_add(self, where: Where, value: Values, **how: Unpack[Atomic]) -> Registers:
        """Add; returns the old value."""
        return self.atom("add", where, value, **how)

    def atom_min(self, where: Where, value: Values, **how: Unpack[Atomic]) -> Registers:
        """Store the minimum; returns the old value."""
        return self.atom("min", where, value, **how)

    def atom_max(self, where: Where, value: Values, **how: Unpack[Atomic]) -> Registers:
        """Store the maximum; returns the old value."""
        return self.atom("max", where, value, **how)

    def atom_and(self, where: Where, value: Values, **how: Unpack[Atomic]) -> Registers:
        """Bitwise and; returns the old value."""
        return self.atom("and", where, value, **how)

    def atom_or(self, where: Where, value: Values, **how: Unpack[Atomic]) -> Registers:
        """Bitwise or; returns the old value."""
        return self.atom("or", where, value, **how)

    def atom_xor(self, where: Where, value: Values, **how: Unpack[Atomic]) -> Registers:
        """Bitwise exclusive or; returns the old value."""
        return self.atom("xor", where, value, **how)

    def atom_inc(self, where: Where, limit: Values, **how: Unpack[Atomic]) -> Registers:
        """Increment, wrapping to 0 after the limit; returns the old value."""
        return self.atom("inc", where, limit, **how)

    def atom_dec(self, where: Where, limit: Values, **how: Unpack[Atomic]) -> Registers:
        """Decrement, wrapping to the limit from 0 or from above it; returns the old value."""
        return self.atom("dec", where, limit, **how)

    def atom_exch(self, where: Where, value: Values, **how: Unpack[Atomic]) -> Registers:
        """Exchange; returns the old value."""
        return self.atom("exch", where, value, **how)

    def atom_cas(self, where: Where, compare: Values, value: Values, **how: Unpack[Atomic]) -> Registers:
        """Replace if the old value is `compare`; returns the old value."""
        return self.atom("cas", where, compare, value, **how)


def _operation_type(op: str, type: str) -> str:
    """The type in an atomic's name: bits for exchanges and logic, u64 for sums of s64."""
    if op in _BITS:
        return bits_of(type)
    return "u64" if op == "add" and type == "s64" else type
