"""Builds one instruction from Python values: finds its form, checks its operands, makes its results."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kernbench.ptx.builder.issuing.body import Body
from kernbench.ptx.builder.issuing.forms import (
    Candidate,
    described,
    inputs_text,
    match_rules,
    types_of,
    with_names,
    with_slots,
)
from kernbench.ptx.builder.values.banks import agrees, bits_of, declared, scalar
from kernbench.ptx.builder.values.errors import PtxBuildError
from kernbench.ptx.builder.values.numbers import immediate, is_number, needs_register
from kernbench.ptx.builder.values.options import Condition, Number, Registers, Targets, Value
from kernbench.ptx.builder.values.pointer import location_of
from kernbench.ptx.builder.values.values import Inverted, Label, Predicate, Register
from kernbench.ptx.isa.forms.form import EITHER, OperandRule
from kernbench.ptx.isa.resolve import filled, resolve
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Address, Guard, Instruction, Name, Not, Operand, Pair, Vector
from kernbench.ptx.text.walking import names_in

__kernbench_internal__ = True

# slot -> modifier, or True for a flag; None and False leave it empty. Also the options `out`, `pred` and `pair`
Slots = Mapping[str, object]
# keywords of methods that are no slots
_OPTIONS = frozenset(("out", "pred", "pair"))


class Issuer:
    """Base class of the context's parts: makes registers, and adds instructions to the body."""

    def __init__(self, body: Body):
        self.body = body

    def error(self, message: str) -> PtxBuildError:
        """An error at the current Python line."""
        return PtxBuildError(message)

    def reg(self, type: str) -> Register:
        """An unset register, for `.set(value)` or `out=` of any method."""
        return self.body.register(self, type)

    def sink(self, type: str) -> Register:
        """The destination `_` for an unused result."""
        return Register(self, "_", type)  # type: ignore[arg-type]

    def issue(
        self,
        opcode: str,
        slots: Slots,
        inputs: Sequence[object],
        *,
        out: object = None,
        pred: object = None,
        keep: str = "",
        pair: bool = False,
    ) -> Registers:
        """Add the form of `opcode` with these modifiers and inputs; returns its results.

        `out` are registers to set instead of new ones, `pred` is the guard, `keep` the type of results that are untyped
        bits of the same width, `pair` requests the second half of a result that has one (usually a predicate).
        """
        given = tuple(
            (name, str(value))
            for name, value in slots.items()
            if value is not None and value is not False and name not in _OPTIONS
        )
        candidates = with_slots(opcode, given)
        if isinstance(candidates, str):
            raise self.error(candidates)
        out, pred = slots.get("out", out), slots.get("pred", pred)
        return self._add(opcode, candidates, inputs, out, pred, keep, pair or bool(slots.get("pair")))

    def op(
        self, name: str, *inputs: object, out: Targets = None, pred: Condition | None = None, pair: bool = False
    ) -> Registers:
        """Any instruction of the table by its full name, `ctx.op("ld.global.v4.f32", p[0])`, with the usual checks.

        Inputs are in PTX's order; results are returned (a tuple for vectors and pairs), or set in `out`.
        """
        opcode, *modifiers = str(name).split(".")
        candidates = with_names(opcode, tuple(modifiers))
        if isinstance(candidates, str):
            raise self.error(candidates)
        return self._add(opcode, candidates, inputs, out, pred, "", pair)

    def typed(
        self,
        opcode: str,
        values: Sequence[object],
        slots: Slots | None = None,
        *,
        by: Sequence[object] | None = None,
        bits: str = "",
        more: Sequence[object] = (),
    ) -> Register:
        """An instruction whose slot `type` is the type of `by`, or else of all values.

        `bits` lists the kinds of values ("usb") that are passed as untyped bits if the instruction has no form for
        their own type. `more` are inputs with types of their own.
        """
        type = self.common_type(opcode, values if by is None else by, mixed="b" in bits)
        chosen = {"type": type, **(slots or {})}
        if type not in types_of(opcode) and scalar(type).kind in bits:
            chosen["type"] = bits_of(type)
        result: Register = self.issue(opcode, chosen, (*values, *more), keep=type)
        return result

    def needs_register(self, what: str, value: object) -> Register:
        """The value, which must be a register other than a predicate."""
        if not isinstance(value, Register) or value.type == "pred":
            raise self.error(f"{what} takes a register, not {value!r}: ctx.const(value, type) puts a number in one")
        self._own(value)
        return value

    def lanes(self, what: str, mask: Value | None) -> Value:
        """The mask of lanes of a warp operation, which is mandatory."""
        if mask is None:
            raise self.error(f"{what} needs mask=, the lanes that take part: 0xffffffff for the whole warp")
        if isinstance(mask, Register) and mask.type not in ("b32", "u32", "s32"):
            raise self.error(f"{what}: mask= is {mask!r}, and 32 bits are wanted, one for each lane")
        return mask

    def common_type(self, what: str, values: Sequence[object], mixed: bool = False) -> str:
        """The common type of the registers among the values; `mixed` allows integers and bits of one width."""
        registers = [value for value in values if isinstance(value, Register)]
        if not registers:
            raise self.error(f"{what} of numbers only: compute it in Python, or put one in a register with ctx.const")
        first = registers[0]
        for other in registers[1:]:
            loose = mixed and agrees(first.type, other.type)
            if other.type != first.type and not loose:
                raise self.error(
                    f"{what} of {first!r} and {other!r}: convert one with .to({first.type!r}), or take its bits with "
                    f".bits({first.type!r})"
                )
        return first.type

    def _add(
        self,
        opcode: str,
        candidates: Sequence[Candidate],
        inputs: Sequence[object],
        out: object,
        pred: object,
        keep: str,
        pair: bool,
    ) -> Registers:
        rules, modifiers = self._fitting(opcode, candidates, inputs)
        name = ".".join((opcode, *modifiers))
        given = iter(inputs)
        reads: list[str] = []
        arguments = {rule.name: self._input(name, rule, next(given), reads) for rule in rules if rule.role != "d"}
        wanted = [rule for rule in rules if rule.role == "d"]
        results = self._results(name, wanted, out, keep, pair)
        made = iter(results)
        operands = tuple(_operand(rule, next(made)) if rule.role == "d" else arguments[rule.name] for rule in rules)
        self._append(Instruction(opcode, modifiers, operands, self._guard(pred)), reads, results)
        return results[0] if len(results) == 1 else (tuple(results) or None)

    def _append(self, instruction: Instruction, reads: Sequence[str], results: Sequence[object]) -> None:
        """Check the finished instruction against the table and the target, and add it."""
        try:
            resolved = resolve(instruction)
        except PtxError as problem:
            raise self.error(str(problem)) from None
        self.body.needs.instruction(resolved, instruction.name, self.body.here())
        guard = () if instruction.guard is None else (instruction.guard.register,)
        # operands that are both read and written
        updated = [
            name
            for rule, operand in zip(resolved.rules, instruction.operands, strict=True)
            if rule.role == "da"
            for name in names_in(operand)
        ]
        writes = [name for result in results for name in _register_names(result)]
        self.body.append(instruction, (*reads, *guard), (*writes, *updated))

    def _guard(self, pred: object) -> Guard | None:
        if pred is None:
            return None
        register = pred.operand if isinstance(pred, Inverted) else pred
        if not isinstance(register, Predicate):
            raise self.error(f"a guard is a predicate, as comparisons give them; got {pred!r}")
        self._own(register)
        return Guard(register.name, isinstance(pred, Inverted))

    def _own(self, register: Register) -> None:
        this: object = self
        if register.context is not this:
            raise self.error(
                f"{register!r} belongs to '{register.context.body.name}', and this is '{self.body.name}': pass it as a "
                "parameter"
            )

    def _fitting(
        self, opcode: str, candidates: Sequence[Candidate], inputs: Sequence[object]
    ) -> tuple[tuple[OperandRule, ...], tuple[str, ...]]:
        """The first form whose operand kinds match these inputs."""
        for form, mods, modifiers in candidates:
            rules = match_rules(filled(form, mods), tuple(inputs))
            if rules is not None:
                return rules, modifiers
        name = ".".join((opcode, *candidates[0][2]))
        wanted = " or ".join(dict.fromkeys(inputs_text(form, mods) for form, mods, _ in candidates))
        got = ", ".join(map(described, inputs)) or "nothing"
        raise self.error(f"{name} takes ({wanted}), and got ({got})")

    # Operands

    def _input(self, name: str, rule: OperandRule, value: object, reads: list[str]) -> Operand:
        if rule.shape in ("addr", "tensor"):
            return self._address(name, value, reads)
        if isinstance(value, Label):
            self.body.branches_to(value)
            return Name(value.name)
        if isinstance(value, (tuple, list)):
            return Vector(tuple(self._scalar(name, rule, item, reads) for item in value))
        if rule.shape == "vec1":
            return Vector((self._scalar(name, rule, value, reads),))
        return self._scalar(name, rule, value, reads)

    def _scalar(self, name: str, rule: OperandRule, value: object, reads: list[str]) -> Operand:
        if isinstance(value, Inverted):
            reads.append(value.operand.name)
            self._own(value.operand)
            return Not(Name(value.operand.name))
        if not isinstance(value, Register):
            return self._number(name, rule, value, reads)
        self._own(value)
        is_predicate = rule.shape == EITHER and isinstance(value, Predicate)
        if not is_predicate and not agrees(rule.type, value.type, rule.wider):
            raise self.error(f"{name}: {rule.name} is {value!r}, and .{rule.type} is wanted{_remedy(rule.type, value)}")
        reads.append(value.name)
        return Name(value.name)

    def _number(self, name: str, rule: OperandRule, value: object, reads: list[str]) -> Operand:
        if not is_number(value):
            raise self.error(f"{name}: {rule.name} is {value!r}, and a register or a number of .{rule.type} is wanted")
        number = immediate(value, rule.type)
        if rule.shape not in ("reg", "reg1") and not needs_register(rule.type):
            return number
        register = self.const(value, rule.type)
        reads.append(register.name)
        return Name(register.name)

    def const(self, value: Number, type: str) -> Register:
        """A constant in a new register."""
        if scalar(type).bits < 16 and type != "pred":
            raise self.error(f"there are no constants of .{type}: make one of .u16, and store it as .{type}")
        made = self.reg(type)
        self.move(made, immediate(value, type), ())
        return made

    def move(
        self, out: Register, source: Operand, reads: tuple[str, ...], type: str = "", pred: Condition | None = None
    ) -> None:
        """`mov` into `out`, with the type of its register's declaration."""
        instruction = Instruction("mov", (type or declared(out.type),), (Name(out.name), source), self._guard(pred))
        self._append(instruction, reads, [out])

    def _address(self, name: str, value: object, reads: list[str]) -> Operand:
        location = location_of(value)
        assert location is not None
        base: Operand = Name(location.base) if isinstance(location.base, str) else Name(location.base.name)
        if isinstance(location.base, Register):
            self._own(location.base)
            if location.base.kind not in "bus" or scalar(location.base.type).bits not in (32, 64):
                raise self.error(f"{name}: {location.base!r} is no address; an address is a 32- or 64-bit integer")
            reads.append(location.base.name)
        rule = OperandRule("coordinates", "a", "s32")
        more = tuple(self._more(name, rule, item, reads) for item in location.more)
        return Address(base, location.offset, more)

    def _more(self, name: str, rule: OperandRule, item: object, reads: list[str]) -> Operand:
        if isinstance(item, (tuple, list)):
            return Vector(tuple(self._scalar(name, rule, coordinate, reads) for coordinate in item))
        return self._scalar(name, rule, item, reads)

    # Results

    def _results(self, name: str, rules: Sequence[OperandRule], out: object, keep: str, pair: bool) -> list[Registers]:
        """The registers to set, one entry per result: a register, or a tuple for a vector or pair."""
        if not rules:
            if out is not None:
                raise self.error(f"{name} sets no register, and out= names one")
            return []
        given: list[object] = [None] * len(rules) if out is None else [out] if len(rules) == 1 else _several(out)
        return [self._result(name, rule, one, keep, pair) for rule, one in zip(rules, given, strict=True)]

    def _result(self, name: str, rule: OperandRule, out: object, keep: str, pair: bool) -> Registers:
        if rule.shape == "pair":
            assert rule.second is not None
            if not pair and out is None and rule.second.optional:
                return self._register(name, rule.type, None, keep)
            if isinstance(out, Register) and rule.second.optional:
                return self._register(name, rule.type, out, keep)
            first, second = _several(out or (None, None))
            return self._register(name, rule.type, first, keep), self._register(name, rule.second.type, second, "")
        if not rule.shape.startswith("vec"):
            return self._register(name, rule.type, out, keep, rule.wider)
        length = int(rule.shape[3:])
        outs: list[object] = [None] * length if out is None else _several(out)
        if len(outs) != length:
            raise self.error(f"{name} sets {length} registers, and out= names {len(outs)}")
        return tuple(self._register(name, rule.type, one, keep, rule.wider) for one in outs)

    def _register(self, name: str, type: str, out: object, keep: str, wider: bool = False) -> Register:
        if out is None:
            same = keep and scalar(type).kind == "b" and scalar(type).bits == scalar(keep).bits
            return self.reg(keep if same else type)
        if not isinstance(out, Register):
            raise self.error(f"{name}: out= is {out!r}, and a register is wanted")
        self._own(out)
        if not agrees(type, out.type, wider):
            raise self.error(f"{name}: out= is {out!r}, and it sets .{type}")
        return out


def _several(out: object) -> list[object]:
    """The registers in `out`, if there are several results."""
    if not isinstance(out, Iterable):
        raise PtxBuildError(f"out= is {out!r}, and several registers are wanted")
    return list(out)


def _operand(rule: OperandRule, result: Registers) -> Operand:
    """The operand for a result."""
    if isinstance(result, Register):
        return Name(result.name)
    if rule.shape == "pair":
        return Pair(Name(result[0].name), Name(result[1].name))
    return Vector(tuple(Name(register.name) for register in result))


def _register_names(result: Registers) -> Iterator[str]:
    for register in result if isinstance(result, tuple) else (result,):
        yield register.name


def _remedy(wanted: str, value: Register) -> str:
    if "pred" in (wanted, value.type):
        return ""
    if scalar(wanted).bits == scalar(value.type).bits:
        return f": convert it with .to({wanted!r}), or take its bits with .bits({wanted!r})"
    return f": convert it with .to({wanted!r})"
