"""Compare and select."""

from collections.abc import Mapping
from typing import Unpack

from kernbench.ptx.builder.issuing.issue import Issuer
from kernbench.ptx.builder.values.options import Comparing, Condition, Flushing, Selecting, Value
from kernbench.ptx.builder.values.values import Inverted, Predicate, Register

__kernbench_internal__ = True

_ANY = "usbfx"


class Compare(Issuer):
    """Predicates from comparisons, and selection by predicates."""

    def setp(
        self,
        cmp: str,
        a: Value,
        b: Value,
        *,
        combine: str | None = None,
        with_: Condition | None = None,
        **how: Unpack[Comparing],
    ) -> Predicate:
        """a `cmp` b: "eq", "ne", "lt", "le", "gt", "ge", for floats also "ltu", ... (true for NaN), "num", "nan".

        `combine` ("and", "or", "xor") combines the result with the predicate `with_`.
        """
        if isinstance(a, Predicate) or isinstance(b, Predicate):
            return self._predicates(cmp, a, b)
        more = () if with_ is None else (with_,)
        slots = {"cmp": cmp, "bool": combine, **how}
        return self.typed("setp", (a, b), slots, bits="b", more=more)  # type: ignore[return-value]

    def _predicates(self, cmp: str, a: Value, b: Value) -> Predicate:
        """Equality of predicates, by logic."""
        if cmp not in ("eq", "ne"):
            raise self.error(f"predicates have no order: {cmp!r} compares numbers")
        differs = self.typed("xor", (a, b))
        return self.typed("not", (differs,)) if cmp == "eq" else differs  # type: ignore[return-value]

    def set(self, cmp: str, a: Value, b: Value, type: str = "u32", **how: Unpack[Flushing]) -> Register:
        """All ones (1.0 for floats) of `type` if a `cmp` b holds, else 0."""
        return self.typed("set", (a, b), {"cmp": cmp, "dtype": type, **how}, bits="b")

    def selp(self, yes: Value, no: Value, p: Predicate | Inverted, **how: Unpack[Selecting]) -> Register:
        """`yes` if p holds, else `no`."""
        if isinstance(p, Inverted):
            yes, no, p = no, yes, p.operand
        return self._select("selp", yes, no, p, how)

    def where(self, p: Predicate | Inverted, yes: Value, no: Value, **how: Unpack[Selecting]) -> Register:
        """`yes` if p holds, else `no`."""
        return self.selp(yes, no, p, **how)

    def slct(self, yes: Value, no: Value, by: Register, **how: Unpack[Selecting]) -> Register:
        """`yes` if `by` >= 0, else `no`."""
        self.needs_register("slct", by)
        return self._select("slct", yes, no, by, {"ctype": by.type, **how})

    def _select(self, opcode: str, yes: Value, no: Value, by: Register, how: Mapping[str, object]) -> Register:
        how = dict(how)
        type = how.pop("type", None)
        if isinstance(type, str) and not any(isinstance(value, Register) for value in (yes, no)):
            yes = self.const(yes, type)  # type: ignore[arg-type]
        return self.typed(opcode, (yes, no), how, bits=_ANY, more=(by,))
