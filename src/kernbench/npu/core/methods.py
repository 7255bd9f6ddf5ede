"""The operations of the table as methods of a core: checked once for each call and set of tiles, then cheap."""

from collections.abc import Callable
from sys import _getframe

from kernbench.npu.core.core import Core
from kernbench.npu.core.forms import FORMS
from kernbench.npu.core.tiles import Tile
from kernbench.npu.isa.mistakes import MISTAKES
from kernbench.npu.isa.operations import OPERATIONS, Operation, call_of

__kernbench_internal__ = True
Method = Callable[..., None]


def _one(op: Operation) -> Method:
    code, run = op.code, op.run
    assert run is not None

    def method(self: Core, dst: Tile, a: Tile) -> None:
        try:
            frame = _getframe(1)
            if frame is not self._frame:
                self._entered(frame)
            key = (code, self._code + frame.f_lasti, dst.number, a.number)
            row = self._memo.get(key)
            self._append(self.record(op, frame, key, dst, (a,)) if row is None else row)
            if dst.data is not None:
                run(dst.data, a.data)
        except MISTAKES as error:
            self.context.refuse(error)
            raise

    return method


def _two(op: Operation) -> Method:
    code, run = op.code, op.run
    assert run is not None

    def method(self: Core, dst: Tile, a: Tile, b: Tile) -> None:
        try:
            frame = _getframe(1)
            if frame is not self._frame:
                self._entered(frame)
            key = (code, self._code + frame.f_lasti, dst.number, a.number, b.number)
            row = self._memo.get(key)
            self._append(self.record(op, frame, key, dst, (a, b)) if row is None else row)
            if dst.data is not None:
                run(dst.data, a.data, b.data)
        except MISTAKES as error:
            self.context.refuse(error)
            raise

    return method


def _three(op: Operation) -> Method:
    code, run = op.code, op.run
    assert run is not None

    def method(self: Core, dst: Tile, a: Tile, b: Tile, c: Tile) -> None:
        try:
            frame = _getframe(1)
            if frame is not self._frame:
                self._entered(frame)
            key = (code, self._code + frame.f_lasti, dst.number, a.number, b.number, c.number)
            row = self._memo.get(key)
            self._append(self.record(op, frame, key, dst, (a, b, c)) if row is None else row)
            if dst.data is not None:
                run(dst.data, a.data, b.data, c.data)
        except MISTAKES as error:
            self.context.refuse(error)
            raise

    return method


def _number(op: Operation) -> Method:
    """No tile read, and a number."""
    code, run = op.code, op.run
    assert run is not None

    def method(self: Core, dst: Tile, value: float) -> None:
        try:
            frame = _getframe(1)
            if frame is not self._frame:
                self._entered(frame)
            key = (code, self._code + frame.f_lasti, dst.number)
            row = self._memo.get(key)
            self._append(self.record(op, frame, key, dst, ()) if row is None else row)
            if dst.data is not None:
                run(dst.data, value)
        except MISTAKES as error:
            self.context.refuse(error)
            raise

    return method


def _one_number(op: Operation) -> Method:
    """One tile read, and a number (or a mode)."""
    code, run = op.code, op.run
    assert run is not None
    default = "rint" if op.form == "convert" else None
    extra = 1 if op.form == "compare_scalar" else 0

    def method(self: Core, dst: Tile, a: Tile, value: object = default, *more: object) -> None:
        try:
            frame = _getframe(1)
            if frame is not self._frame:
                self._entered(frame)
            key = (code, self._code + frame.f_lasti, dst.number, a.number)
            row = self._memo.get(key)
            self._append(self.record(op, frame, key, dst, (a,)) if row is None else row)
            if value is None:
                self.context.fail("misuse", f"{op.name}: a number is wanted after the tiles: {call_of(op)}")
            if len(more) != extra:
                self.context.fail("misuse", f"{op.name}: {3 + len(more)} arguments; it is called {call_of(op)}")
            if dst.data is not None:
                run(dst.data, a.data, value, *more)
        except MISTAKES as error:
            self.context.refuse(error)
            raise

    return method


def _two_mode(op: Operation) -> Method:
    code, run = op.code, op.run
    assert run is not None

    def method(self: Core, dst: Tile, a: Tile, b: Tile, mode: str) -> None:
        try:
            frame = _getframe(1)
            if frame is not self._frame:
                self._entered(frame)
            key = (code, self._code + frame.f_lasti, dst.number, a.number, b.number)
            row = self._memo.get(key)
            self._append(self.record(op, frame, key, dst, (a, b)) if row is None else row)
            if dst.data is not None:
                run(dst.data, a.data, b.data, mode)
        except MISTAKES as error:
            self.context.refuse(error)
            raise

    return method


_MAKERS: dict[tuple[int, bool], Callable[[Operation], Method]] = {
    (0, True): _number,
    (1, False): _one,
    (1, True): _one_number,
    (2, False): _two,
    (2, True): _two_mode,
    (3, False): _three,
}
# not generated here: they move, block, or write more than one tile
OWN = ("tmatmul_bias", "textract", "tfillpad", "tsort")


def install(core: type[Core]) -> None:
    """Add a method for each plain operation to a class of cores."""
    for op in OPERATIONS.values():
        if op.form in FORMS and op.name not in OWN:
            reads, extra, _ = FORMS[op.form]
            method = _MAKERS[reads, extra](op)
            method.__name__ = method.__qualname__ = op.name
            method.__doc__ = f"{op.meaning[0].upper()}{op.meaning[1:]}."
            setattr(core, op.name, method)
