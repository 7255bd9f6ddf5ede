"""Compare and select."""

from typing import Any

from kernbench.ptx.builder.issuing.issue import Condition, Issuer, Value
from kernbench.ptx.builder.values.values import Inverted, Predicate, Register

__kernbench_internal__ = True

_ANY = "usbfx"


class Compare(Issuer):
    """Predicates from values, and values by predicates."""

    def setp(
        self, cmp: str, a: Value, b: Value, *, combine: str | None = None, with_: Condition | None = None, **how: Any
    ) -> Predicate:
        """a `cmp` b: "eq", "ne", "lt", "le", "gt", "ge", for floats also "ltu", ... (true for NaN), "num", "nan".

        `combine` ("and", "or", "xor") joins the result with the predicate `with_`.
        """
        if isinstance(a, Predicate) or isinstance(b, Predicate):
            return self._predicates(cmp, a, b)
        options = {name: how.pop(name) for name in ("out", "pred", "pair") if name in how}
        more = () if with_ is None else (with_,)
        result: Any = self.typed("setp", (a, b), {"cmp": cmp, "bool": combine, **how}, bits="b", more=more, **options)
        return result  # type: ignore[no-any-return]

    def _predicates(self, cmp: str, a: Value, b: Value) -> Predicate:
        """Equality of predicates is logic."""
        if cmp not in ("eq", "ne"):
            raise self.error(f"predicates have no order: {cmp!r} compares numbers")
        differs: Any = self.typed("xor", (a, b))
        return self.typed("not", (differs,)) if cmp == "eq" else differs  # type: ignore[return-value]

    def set(self, cmp: str, a: Value, b: Value, type: str = "u32", **how: Any) -> Register:
        """All ones (1.0 for floats) of `type` where a `cmp` b holds, else 0."""
        options = {name: how.pop(name) for name in ("out", "pred") if name in how}
        return self.typed("set", (a, b), {"cmp": cmp, "dtype": type, **how}, bits="b", **options)

    def selp(self, yes: Value, no: Value, p: Predicate | Inverted, **how: Any) -> Register:
        """`yes` where p holds, else `no`."""
        if isinstance(p, Inverted):
            yes, no, p = no, yes, p.operand
        return self._select("selp", yes, no, p, how)

    def where(self, p: Predicate | Inverted, yes: Value, no: Value, **how: Any) -> Register:
        """`yes` where p holds, else `no`."""
        return self.selp(yes, no, p, **how)

    def slct(self, yes: Value, no: Value, by: Register, **how: Any) -> Register:
        """`yes` where `by` is 0 or more, else `no`."""
        self.needs_register("slct", by)
        return self._select("slct", yes, no, by, {"ctype": by.type, **how})

    def _select(self, opcode: str, yes: Value, no: Value, by: Register, how: dict[str, Any]) -> Register:
        options = {name: how.pop(name) for name in ("out", "pred") if name in how}
        type = how.pop("type", None)
        if type is not None and not any(isinstance(value, Register) for value in (yes, no)):
            yes = self.const(yes, type)  # type: ignore[arg-type]
        return self.typed(opcode, (yes, no), how, bits=_ANY, more=(by,), **options)
