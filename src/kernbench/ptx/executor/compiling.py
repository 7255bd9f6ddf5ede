"""Machine code of operations: each is a function of its own that calls the next one as its last act.

An operation gets a warp, the record of its instruction, and the lanes for which it runs. Its code ends with a jump to
the code of the next record, so that no loop dispatches. Machine code is kept on disk by the operation's name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from kernbench.common.native.expressions import Function
from kernbench.common.native.functions import Module
from kernbench.common.native.kinds import INT, Array, Kind, NotPlain, Static, scalar_of
from kernbench.common.native.machine import machine_name
from kernbench.common.native_loops import KeptCode
from kernbench.ptx.executor.ops.layout import ACTIVE, CODE, LANES, OPERANDS, RECORD_BYTES, REGISTERS

_HEAD = 'define void @{name}(ptr noundef %w, ptr noundef %r, i32 noundef %m) nounwind "prefer-vector-width"="512" {{'
# the first word of a warp
assert REGISTERS == 0
_REGISTERS = "%registers = load ptr, ptr %w, align 8"
_NEXT = [
    f"%active.at = getelementptr i8, ptr %w, i64 {8 * ACTIVE}",
    "%active = load i32, ptr %active.at",
    f"%code.at = getelementptr i8, ptr %next, i64 {CODE}",
    "%code = load ptr, ptr %code.at",
    "musttail call void %code(ptr noundef %w, ptr noundef %next, i32 noundef %active)",
    "ret void",
]


@dataclass(frozen=True)
class Lanewise:
    """An operation of each lane by itself: `function(*sources, *targets)` over rows of `count` elements for each lane.

    `sources` and `targets` are the types of these elements. Lanes that do not take part keep their targets.
    """

    name: str
    function: Function
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    count: int = 1

    def text(self, name: str) -> str:
        """The module, whose only exported function is `name`."""
        module = Module(as_numpy=True)
        kinds = [_array(one) for one in (*self.sources, *self.targets)]
        called = module.called(self.function, tuple(kinds)).name
        lines = [_REGISTERS]
        lines += _operands(len(self.targets) + len(self.sources))
        length, many = LANES * self.count, len(self.targets)
        results = [f"%result.{number}" for number in range(many)]
        given = [f"%operand.{many + number}" for number in range(len(self.sources))] + results
        lines += [f"call void @{called}({', '.join(f'ptr {at}, i64 {length}' for at in given)})"]
        lines += ["%whole = icmp eq i32 %m, -1", "br i1 %whole, label %all, label %some"]
        rooms = []
        for number, kind in enumerate(kinds[len(self.sources) :]):
            rooms.append(f"%result.{number} = alloca [{length} x {kind.item.stored}], align 64")
        code = [f"<{LANES} x i{8 * kind.item.nbytes * self.count}>" for kind in kinds[len(self.sources) :]]
        whole, part = ["all:"], ["some:", f"%lanes = bitcast i32 %m to <{LANES} x i1>"]
        for number, row in enumerate(code):
            whole += [f"%all.{number} = load {row}, ptr %result.{number}, align 64"]
            whole += [f"store {row} %all.{number}, ptr %operand.{number}, align 32"]
            part += [f"%some.{number} = load {row}, ptr %result.{number}, align 64"]
            part += [f"%old.{number} = load {row}, ptr %operand.{number}, align 32"]
            part += [f"%new.{number} = select <{LANES} x i1> %lanes, {row} %some.{number}, {row} %old.{number}"]
            part += [f"store {row} %new.{number}, ptr %operand.{number}, align 32"]
        step = ["on:", f"%next = getelementptr i8, ptr %r, i64 {RECORD_BYTES}", *_NEXT]
        body = ["entry:", *rooms, *lines, *whole, "br label %on", *part, "br label %on", *step]
        return module.text + "\n".join([_HEAD.format(name=name), *body, "}"])


@dataclass(frozen=True)
class Warpwide:
    """An operation of a whole warp: `function(warp, record, mask, *statics)` gives the record to go on at, 0 to stop.

    Warp and record are addresses.
    """

    function: Callable[..., object]
    statics: tuple[object, ...] = ()

    @property
    def name(self) -> str:
        """It says what the machine code depends on."""
        return f"{self.function.__module__}.{self.function.__name__} {self.statics!r}"

    def text(self, name: str) -> str:
        """The module, whose only exported function is `name`."""
        module = Module(as_numpy=True, inlined=True)
        kinds: list[Kind | Static] = [INT, INT, INT, *(Static(one) for one in self.statics)]
        called = module.called(self.function, tuple(kinds)).name
        body = [
            "entry:",
            "%warp = ptrtoint ptr %w to i64",
            "%record = ptrtoint ptr %r to i64",
            "%mask = zext i32 %m to i64",
            f"%going = call i64 @{called}(i64 %warp, i64 %record, i64 %mask)",
            "%stops = icmp eq i64 %going, 0",
            "br i1 %stops, label %stop, label %on",
            "stop:",
            "ret void",
            "on:",
            "%next = inttoptr i64 %going to ptr",
            *_NEXT,
        ]
        return module.text + "\n".join([_HEAD.format(name=name), *body, "}"])


@dataclass(frozen=True)
class Guard:
    """The next record runs for the active lanes whose predicate holds; it is left out if there are none."""

    negated: bool

    @property
    def name(self) -> str:
        """It says what the machine code depends on."""
        return f"guard {self.negated}"

    def text(self, name: str) -> str:
        """The module, whose only exported function is `name`."""
        body = [
            "entry:",
            _REGISTERS,
            *_operands(1),
            f"%row = load <{LANES} x i8>, ptr %operand.0, align 32",
            f"%set = icmp {'eq' if self.negated else 'ne'} <{LANES} x i8> %row, zeroinitializer",
            f"%held = bitcast <{LANES} x i1> %set to i32",
            "%lanes = and i32 %held, %m",
            "%none = icmp eq i32 %lanes, 0",
            f"%step = select i1 %none, i64 {2 * RECORD_BYTES}, i64 {RECORD_BYTES}",
            "%mask = select i1 %none, i32 %m, i32 %lanes",
            "%next = getelementptr i8, ptr %r, i64 %step",
            f"%code.at = getelementptr i8, ptr %next, i64 {CODE}",
            "%code = load ptr, ptr %code.at",
            "musttail call void %code(ptr noundef %w, ptr noundef %next, i32 noundef %mask)",
            "ret void",
        ]
        return "\n".join([_HEAD.format(name=name), *body, "}"])


class NoCodeError(Exception):
    """The machine code of an operation is not kept, and its name does not say how to make it."""


@dataclass(frozen=True)
class Named:
    """An operation of rows from the disk: its name, which finds its machine code if that is kept."""

    name: str

    def text(self, name: str) -> str:
        """Raises `NoCodeError`: whoever has the program's text makes its rows anew."""
        raise NoCodeError(self.name)


Operation = Lanewise | Warpwide | Guard | Named


def _array(kind: str) -> Array:
    return Array(scalar_of(np.dtype(kind)), 1, True)


def _operands(count: int) -> list[str]:
    """The addresses of the operands of a record, in the registers of its warp."""
    lines = []
    for number in range(count):
        lines += [
            f"%at.{number} = getelementptr i8, ptr %r, i64 {OPERANDS + 4 * number}",
            f"%offset.{number} = load i32, ptr %at.{number}",
            f"%wide.{number} = zext i32 %offset.{number} to i64",
            f"%operand.{number} = getelementptr i8, ptr %registers, i64 %wide.{number}",
        ]
    return lines


def _named(operation: Operation) -> str:
    return f"op_{sha256(f'{operation.name} {machine_name()}'.encode()).hexdigest()[:24]}"


def is_plain(operation: Lanewise) -> bool:
    """Whether an operation can be compiled: numba compiles some functions of the numerics that we cannot."""
    known = _PLAIN.get(operation.name)
    if known is None:
        known = _PLAIN[operation.name] = _KEPT.kept(_named(operation)) is not None or _has_text(operation)
    return known


def _has_text(operation: Lanewise) -> bool:
    try:
        operation.text("operation")
    except NotPlain:
        return False
    return True


_KEPT = KeptCode(_operands, "operations")
_ADDRESSES: dict[str, int] = {}
# by name, whether an operation of lanes can be compiled
_PLAIN: dict[str, bool] = {}


def addresses(operations: Sequence[Operation]) -> list[int]:
    """The addresses of the code of operations, compiled where they are needed for the first time."""
    names = [_named(one) for one in operations]
    missing = {name: one for name, one in zip(names, operations, strict=True) if name not in _ADDRESSES}
    if missing:
        _ADDRESSES.update(_KEPT.functions({name: one.text for name, one in missing.items()}))
    return [_ADDRESSES[name] for name in names]
