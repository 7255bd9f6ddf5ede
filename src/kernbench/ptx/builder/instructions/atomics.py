"""Atomics and reductions in memory."""

from typing import Any

from kernbench.ptx.builder.instructions.memory import Memory
from kernbench.ptx.builder.issuing.issue import Condition, Value
from kernbench.ptx.builder.values.banks import bits_of, scalar
from kernbench.ptx.builder.values.numbers import needs_register
from kernbench.ptx.builder.values.values import Register

__kernbench_internal__ = True

# operations that work on untyped bits
_BITS = frozenset(("and", "or", "xor", "exch", "cas"))
_PACKED = frozenset(("f16", "bf16", "f16x2", "bf16x2"))


class Atomics(Memory):
    """Read, change and write in one step; `sem`, `scope` and `policy` as PTX has them, `pred` for a guard."""

    def atom(
        self,
        op: str,
        where: Any,
        *values: Any,
        index: Value | None = None,
        type: str | None = None,
        pred: Condition | None = None,
        out: Any = None,
        **how: Any,
    ) -> Any:
        """Apply `op` (add, min, max, inc, dec, and, or, xor, exch, cas) and give back the old value.

        `cas` takes the value to compare with and the new one. A tuple is a vector of neighbours.
        """
        place, slots, given, found = self._atomic(op, where, values, index, type, how)
        return self.issue("atom", slots, (place, *given), out=out, pred=pred, keep=found)

    def red(
        self,
        op: str,
        where: Any,
        value: Any,
        *,
        index: Value | None = None,
        type: str | None = None,
        pred: Condition | None = None,
        **how: Any,
    ) -> None:
        """Apply `op` without reading the old value."""
        place, slots, given, _ = self._atomic(op, where, (value,), index, type, how)
        self.issue("red", slots, (place, *given), pred=pred)

    def _atomic(
        self, op: str, where: Any, values: tuple[Any, ...], index: Value | None, type: str | None, how: dict[str, Any]
    ) -> tuple[Any, dict[str, Any], tuple[Any, ...], str]:
        if type is None and isinstance(where, Register):
            type = next((value.type for value in values if isinstance(value, Register)), None)
        place, found = self.place_of(where, index, type)
        policy = how.pop("policy", None)
        slots: dict[str, Any] = {**how, "space": place.space or None, "op": op, "type": _operation_type(op, found)}
        vector = next((len(value) for value in values if isinstance(value, (tuple, list))), 0)
        if vector:
            slots["vec"] = f"v{vector}"
        if found in _PACKED and op not in _BITS:
            slots["noftz"] = True
        if policy is not None:
            slots["hint"] = "L2::cache_hint"
        given = tuple(self._given(found, value) for value in values)
        return place, slots, (*given, *(() if policy is None else (policy,))), found

    def _given(self, type: str, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return tuple(self._given(type, one) for one in value)
        value = self._stored(type, value)
        # float bits cannot be written as a number of an untyped operand
        plain = isinstance(value, Register) or scalar(type).kind not in "fx" or needs_register(type)
        return value if plain else self.const(value, type)

    def atom_add(self, where: Any, value: Any, **how: Any) -> Any:
        """Add; gives back the old value."""
        return self.atom("add", where, value, **how)

    def atom_min(self, where: Any, value: Any, **how: Any) -> Any:
        """Keep the smaller one; gives back the old value."""
        return self.atom("min", where, value, **how)

    def atom_max(self, where: Any, value: Any, **how: Any) -> Any:
        """Keep the larger one; gives back the old value."""
        return self.atom("max", where, value, **how)

    def atom_and(self, where: Any, value: Any, **how: Any) -> Any:
        """And; gives back the old value."""
        return self.atom("and", where, value, **how)

    def atom_or(self, where: Any, value: Any, **how: Any) -> Any:
        """Or; gives back the old value."""
        return self.atom("or", where, value, **how)

    def atom_xor(self, where: Any, value: Any, **how: Any) -> Any:
        """Exclusive or; gives back the old value."""
        return self.atom("xor", where, value, **how)

    def atom_inc(self, where: Any, limit: Any, **how: Any) -> Any:
        """Count up, to 0 past the limit; gives back the old value."""
        return self.atom("inc", where, limit, **how)

    def atom_dec(self, where: Any, limit: Any, **how: Any) -> Any:
        """Count down, to the limit from 0 or above it; gives back the old value."""
        return self.atom("dec", where, limit, **how)

    def atom_exch(self, where: Any, value: Any, **how: Any) -> Any:
        """Replace; gives back the old value."""
        return self.atom("exch", where, value, **how)

    def atom_cas(self, where: Any, compare: Any, value: Any, **how: Any) -> Any:
        """Replace where the old value is `compare`; gives back the old value."""
        return self.atom("cas", where, compare, value, **how)


def _operation_type(op: str, type: str) -> str:
    """The type an atomic names: bits for exchanges and logic, u64 for sums of s64."""
    if op in _BITS:
        return bits_of(type)
    return "u64" if op == "add" and type == "s64" else type
