"""Moves, conversions, packing and unpacking."""

from typing import Unpack

from kernbench.ptx.builder.issuing.issue import Issuer
from kernbench.ptx.builder.values.banks import agrees, declared, scalar
from kernbench.ptx.builder.values.numbers import immediate
from kernbench.ptx.builder.values.options import Computing, Condition, Converting, Number, Value
from kernbench.ptx.builder.values.values import Predicate, Register
from kernbench.ptx.text.module import Instruction, Name, Vector

__kernbench_internal__ = True


class Convert(Issuer):
    """Conversions between types."""

    def mov(
        self, value: Value, *, type: str | None = None, out: Register | None = None, pred: Condition | None = None
    ) -> Register:
        """A copy of a register, or a number in a register: of `type`, or of the type of `out`."""
        if not isinstance(value, Register):
            return self._set_number(value, type, out, pred)
        self._own(value)
        target = self.reg(value.type) if out is None else out
        if not agrees(target.type, value.type):
            raise self.error(f"mov: {value!r} into {target!r}: convert it with .to({target.type!r})")
        self._own(target)
        move_type = declared(value.type) if declared(value.type) != "b8" else "b16"
        same = declared(target.type) == declared(value.type)
        self.move(target, Name(value.name), (value.name,), move_type if same else f"b{scalar(value.type).bits}", pred)
        return target

    def _set_number(self, value: Number, type: str | None, out: Register | None, pred: Condition | None) -> Register:
        if out is None:
            if type is None:
                raise self.error(f"mov of {value!r}: say its type=, or give a register to set as out=")
            if pred is not None:
                raise self.error("mov under a guard needs out=, a register that has a value for the other threads")
            return self.const(value, type)
        self._own(out)
        self.move(out, immediate(value, out.type), (), "", pred)
        return out

    def cvt(self, value: Register, type: str, **how: Unpack[Converting]) -> Register:
        """The value as another type; by default rounded to nearest for floats and towards zero for integers."""
        scalar(type)
        if isinstance(value, Predicate):
            self._own(value)
            return self.issue("selp", {**_results(how), "type": type}, (1, 0, value))  # type: ignore[no-any-return]
        self.needs_register("cvt", value)
        if type == "pred":
            return self.issue("setp", {**_results(how), "cmp": "ne", "type": value.type}, (value, 0))  # type: ignore[no-any-return]
        if value.type == type and not how.keys() - {"out", "pred"}:
            return self.mov(value, out=how.get("out"), pred=how.get("pred"))
        if "b" in (value.kind, scalar(type).kind):
            raise self.error(f"{value!r} to .{type}: untyped bits have no value to convert; .bits({type!r}) takes them")
        if "bf16" in (value.type, type) and 8 in (scalar(value.type).bits, scalar(type).bits):
            # PTX converts bf16 only from and to registers of exactly the type's width; a detour by f32 is exact
            return self.cvt(self.cvt(value, "f32"), type, **how)
        if "rnd" not in how:
            how["rnd"] = _rounding(value.type, type)
        slots = {**how, "dtype": type, "atype": value.type}
        return self.issue("cvt", slots, (value,), keep=type)  # type: ignore[no-any-return]

    def cvt_pack(self, type: str, high: Value, low: Value, **how: Unpack[Converting]) -> Register:
        """Two f32 as a packed type (f16x2, bf16x2, e4m3x2, ...), the first in the high half."""
        if scalar(type).bits < 32 and "satfinite" not in how:
            how["satfinite"] = True
        slots = {"rnd": "rn", **how, "dtype": type, "atype": "f32"}
        return self.issue("cvt", slots, (high, low), keep=type)  # type: ignore[no-any-return]

    def bitcast(self, value: Register, type: str, *, out: Register | None = None) -> Register:
        """The same bits as another type of the same width."""
        self.needs_register("bitcast", value)
        if scalar(type).bits != scalar(value.type).bits or "pred" in (type, value.type):
            raise self.error(f"{value!r} has not as many bits as .{type}: convert it with .to({type!r})")
        self._own(value)
        target = self.reg(type) if out is None else out
        self.move(target, Name(value.name), (value.name,), f"b{max(16, scalar(type).bits)}")
        return target

    def pack(self, type: str, *parts: Register, out: Register | None = None) -> Register:
        """Two or four registers packed into one, the first in the low bits."""
        width = scalar(type).bits
        return self.issue("mov", {"type": f"b{width}"}, (parts,), keep=type, out=out)  # type: ignore[no-any-return]

    def unpack(self, value: Register, type: str) -> tuple[Register, ...]:
        """A register split into parts of `type`, the low bits first."""
        self.needs_register("unpack", value)
        parts, left = divmod(scalar(value.type).bits, scalar(type).bits)
        if left or parts not in (2, 4):
            raise self.error(f"{value!r} does not hold two or four values of .{type}")
        self._own(value)
        made = tuple(self.reg(type) for _ in range(parts))
        vector = Vector(tuple(Name(part.name) for part in made))
        instruction = Instruction("mov", (f"b{scalar(value.type).bits}",), (vector, Name(value.name)))
        self._append(instruction, (value.name,), [made])
        return made

    def cvta(self, address: Register, space: str, *, to_generic: bool = False) -> Register:
        """A generic address converted to a space, or with `to_generic` the reverse."""
        slots = {"space": space, "type": "u64"} if to_generic else {"to": True, "space": space, "type": "u64"}
        return self.issue("cvta", slots, (address,))  # type: ignore[no-any-return]

    def isspacep(self, space: str, address: Register) -> Predicate:
        """Whether a generic address is in this space."""
        return self.issue("isspacep", {"space": space}, (address,))  # type: ignore[no-any-return]


def _results(how: Converting) -> Computing:
    """The register to set and the guard, from a conversion's options."""
    chosen: Computing = {}
    if "out" in how:
        chosen["out"] = how["out"]
    if "pred" in how:
        chosen["pred"] = how["pred"]
    return chosen


def _rounding(source: str, target: str) -> str | None:
    """The default rounding of a conversion."""
    a, d = scalar(source), scalar(target)
    if target == "tf32":
        return "rna"
    if a.kind == "x" or d.kind == "x":
        return "rn"
    if d.kind != "f":
        return "rzi" if a.kind == "f" else None
    if a.kind != "f":
        return "rn"
    narrows = d.bits < a.bits or (d.bits == a.bits == 16 and source != target)
    return "rn" if narrows else None
