"""Finds the function of an instruction by its meaning and modifiers in the ISA table.

Every function takes the instruction's sources in operand order, then its destinations: `function(*sources, *targets)`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics import approximate, compare
from kernbench.ptx.numerics.conversion import convert
from kernbench.ptx.numerics.conversion import packed as convert_packed
from kernbench.ptx.numerics.floats import arithmetic as floats
from kernbench.ptx.numerics.floats import extremes, half
from kernbench.ptx.numerics.integers import arithmetic as integer
from kernbench.ptx.numerics.integers import bitwise, permute
from kernbench.ptx.numerics.rows.loops import Factory, Mods, Operation, Row
from kernbench.ptx.text.types import TYPES


@dataclass(frozen=True, slots=True)
class TwoOrThree:
    """An operation that takes two sources or three, each with a function of its own."""

    two: Operation
    three: Operation

    def __call__(self, *rows: Row) -> None:
        """Rows, the result last."""
        self.of(len(rows) - 1)(*rows)

    def of(self, sources: int) -> Operation:
        """The function for some number of sources."""
        return self.two if sources < 3 else self.three


def _spread(kind: str, make: Callable[[str], Operation]) -> Operation:
    """The operation of a packed type from that of its elements; of an unpacked type, that operation itself."""
    known = TYPES[kind]
    if known.lanes == 1:
        return make(kind)
    return half.packed(make(known.lane), known.bits // known.lanes)


def _float_arithmetic(name: str) -> Factory:
    def factory(mods: Mods) -> Operation:
        rnd, ftz, sat, relu = mods.get("rnd", "rn"), "ftz" in mods, "sat" in mods, "relu" in mods

        def of_lane(kind: str) -> Operation:
            if kind in ("f16", "bf16"):
                return half.arithmetic(name, kind, ftz, sat, relu)
            return floats.arithmetic(name, kind, rnd, ftz, sat)

        operation = _spread(mods["type"], of_lane)
        return _mixed(operation, name, mods["atype"]) if "atype" in mods else operation

    return factory


def _mixed(operation: Operation, name: str, source: str) -> Operation:
    """An f32 operation whose first operand (for fma: first two) is f16 or bf16."""
    widen = convert.convert("f32", source)
    count = 2 if name == "fma" else 1

    def with_halves(*rows: Row) -> None:
        out = rows[-1]
        wide = [np.empty(out.shape, np.uint32) for _ in range(count)]
        for narrow, row in zip(rows, wide, strict=False):
            widen(narrow, row)
        operation(*wide, *rows[count:])

    return with_halves


def _division(mods: Mods) -> Operation:
    if "mode" in mods:
        return approximate.divide(mods["mode"], "ftz" in mods)
    return _float_arithmetic("div")(mods)


def _root(name: str) -> Factory:
    exact = _float_arithmetic(name) if name in floats.ARITY else None

    def factory(mods: Mods) -> Operation:
        if exact is None or "mode" in mods:
            return _spread(mods["type"], lambda kind: approximate.approximate(name, kind, "ftz" in mods))
        return exact(mods)

    return factory


def _float_extreme(name: str) -> Factory:
    def factory(mods: Mods) -> Operation:
        def of_lane(kind: str, inputs: int = 2) -> Operation:
            flags = ("ftz" in mods, "NaN" in mods, "xorsign" in mods, "abs" in mods)
            return extremes.extreme(name, kind, *flags, inputs)

        two, three = _spread(mods["type"], of_lane), None
        if mods["type"] == "f32" and "xorsign" not in mods:
            three = of_lane("f32", 3)
        return two if three is None else TwoOrThree(two, three)

    return factory


def _integer_extreme(name: str) -> Factory:
    return lambda mods: _spread(mods["type"], lambda kind: integer.extreme(name, kind, "relu" in mods))


def _integer_sum(name: str) -> Factory:
    def factory(mods: Mods) -> Operation:
        if "sat" in mods:
            return integer.saturating(name, mods["type"])
        return _spread(mods["type"], lambda kind: integer.wrapping(name))

    return factory


def _carry(name: str) -> Factory:
    """With the flag as the last source if `reads` (addc, subc, madc), and as the last target if `cc`."""

    def factory(mods: Mods) -> Operation:
        reads, writes = "reads" in mods, "cc" in mods
        if not (reads or writes):
            raise MisuseError(f"{name}: a carry form reads or writes the flag; give cc, reads, or both")
        if name == "mad":
            return integer.carrying_multiply_add(mods["type"], mods["part"], reads, writes)
        return integer.carrying(name, int(mods["type"][1:]), reads, writes)

    return factory


def _sign(name: str) -> Factory:
    return lambda mods: _spread(mods["type"], lambda kind: extremes.sign_operation(name, kind, "ftz" in mods))


def _lop3(mods: Mods) -> Operation:
    """lop3: the table is among the sources, as an immediate."""
    if "bool" in mods:
        return _lop3_predicate(mods["bool"])
    return lambda a, b, c, lut, out: bitwise.lop3(int(lut) & 0xFF)(a, b, c, out)


def _lop3_predicate(name: str) -> Operation:
    join = np.logical_or if name == "or" else np.logical_and

    def operation(a: Row, b: Row, c: Row, lut: Row, q: Row, out: Row, p: Row) -> None:
        before = np.array(q)
        bitwise.lop3(int(lut) & 0xFF)(a, b, c, out)
        join(out != 0, before, out=p)

    return operation


def _set_predicate(mods: Mods) -> Operation:
    """Targets p and, if the instruction has it, q; for a packed type p is for the low half and q for the high one."""
    known, name, ftz = TYPES[mods["type"]], mods["cmp"], "ftz" in mods
    if known.lanes == 2:
        return compare.set_predicate_pair(name, known.lane, mods.get("bool", ""), ftz)
    if "bool" in mods:
        return compare.set_predicate(name, mods["type"], mods["bool"], ftz)
    test = compare.compare(name, mods["type"], ftz)

    def both(*rows: Row) -> None:
        test(*rows[:3])
        if len(rows) == 4:
            np.logical_not(rows[2], out=rows[3])

    both.single = test  # type: ignore[attr-defined]
    return both


def _set_value(mods: Mods) -> Operation:
    known, ftz, combine = TYPES[mods["type"]], "ftz" in mods, mods.get("bool", "")
    if known.lanes == 2:
        return compare.set_value_pair(mods["cmp"], known.lane, mods["dtype"], ftz, combine)
    return compare.set_value(mods["cmp"], mods["type"], mods["dtype"], ftz, combine)


def _convert(mods: Mods) -> Operation:
    flags = {name: name in mods for name in ("ftz", "sat", "satfinite", "relu")}
    return convert.convert(mods["dtype"], mods["atype"], mods.get("rnd", ""), **flags)


def _convert_packed(mods: Mods) -> Operation:
    return convert_packed.convert(
        mods["dtype"], mods["atype"], mods["rnd"], satfinite="satfinite" in mods, relu="relu" in mods
    )


# those of the other modules, and below those composed of several
FACTORIES: dict[str, Factory] = {
    **bitwise.FACTORIES,
    **integer.FACTORIES,
    **compare.FACTORIES,
    **permute.FACTORIES,
    **convert_packed.FACTORIES,
    "add.int": _integer_sum("add"),
    "sub.int": _integer_sum("sub"),
    "min.int": _integer_extreme("min"),
    "max.int": _integer_extreme("max"),
    "add.carry": _carry("add"),
    "sub.carry": _carry("sub"),
    "mad.carry": _carry("mad"),
    "lop3": _lop3,
    "add.float": _float_arithmetic("add"),
    "sub.float": _float_arithmetic("sub"),
    "mul.float": _float_arithmetic("mul"),
    "fma": _float_arithmetic("fma"),
    "div.float": _division,
    "rcp": _root("rcp"),
    "sqrt": _root("sqrt"),
    "rsqrt": _root("rsqrt"),
    "sin": _root("sin"),
    "cos": _root("cos"),
    "lg2": _root("lg2"),
    "ex2": _root("ex2"),
    "tanh": _root("tanh"),
    "abs.float": _sign("abs"),
    "neg.float": _sign("neg"),
    "min.float": _float_extreme("min"),
    "max.float": _float_extreme("max"),
    "setp": _set_predicate,
    "set": _set_value,
    "cvt": _convert,
    "cvt.packed": _convert_packed,
}


# bounded by the number of kinds of instructions
_MADE: dict[tuple[str, frozenset[tuple[str, str]]], Operation] = {}


def operation(meaning: str, mods: Mods) -> Operation:
    """The function over rows for a resolved instruction: `function(*sources, *targets)`.

    Sources may be zero-dimensional (immediates). For carries, `mods` has "reads" beside the instruction's own if the
    flag is read; the flag, a bool row, is the last source and the last target. The same instruction always gives the
    same function.
    """
    key = meaning, frozenset(mods.items())
    made = _MADE.get(key)
    if made is None:
        if meaning not in FACTORIES:
            raise MisuseError(unknown("meaning of a lane-wise instruction", meaning, FACTORIES))
        made = _MADE[key] = FACTORIES[meaning](mods)
    return made


def operations_so_far() -> Mapping[tuple[str, frozenset[tuple[str, str]]], Operation]:
    """All functions that `operation` has returned in this process, by meaning and modifiers."""
    return dict(_MADE)


def numpy_equivalent(meaning: str, mods: Mods) -> tuple[np.ufunc, type] | None:
    """(ufunc, float type) if NumPy on views of the rows gives the same results except for which NaN; else None."""
    plain = not {"ftz", "sat", "relu", "atype"} & set(mods) and mods.get("rnd", "rn") == "rn" and "mode" not in mods
    name, _, kind = meaning.partition(".")
    if kind != "float" or not plain:
        return None
    return floats.NUMPY_EQUIVALENT.get((name, mods["type"]))
