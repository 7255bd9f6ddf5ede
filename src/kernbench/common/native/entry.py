"""The entry of a loop: a C function that Python calls. It unpacks the arguments and runs the loop without the GIL.

It returns the result, or NotImplemented if the loop was compiled for other argument kinds.

Object fields are read at fixed offsets, where CPython and NumPy have kept them for many versions; `layout_is_known`
checks them on this installation. Addresses of types and of Python's C functions differ between processes. They come
from a table that is filled in when the machine code is loaded.
"""

import ctypes
import importlib
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from typing import cast

import numpy as np

from kernbench.common.native.expressions import result_code
from kernbench.common.native.kinds import (
    FLOAT,
    INT,
    TRUTH,
    Array,
    Kind,
    NotPlain,
    Record,
    Scalar,
    Value,
    codes,
    numpy_type,
    parts,
    scalar_of,
)
from kernbench.common.native.writer import Writer

# offsets in bytes: of the type in any object, the value in a NumPy scalar, the size and items in a tuple, the fields of
# an array. From Python 3.14 on a tuple stores its hash before its items
_TYPE, _NUMBER, _SIZE, _ITEMS = 8, 16, 16, tuple.__basicsize__
_DATA, _NDIM, _LENGTHS, _STRIDES, _DTYPE, _FLAGS = 16, 24, 32, 40, 56, 64
_PACKED, _ALIGNED = 0x1, 0x100
# and in a NumPy dtype: its byte-order character, its type number
_ORDER, _TYPE_NUMBER = 26, 28
_FUNCTIONS = (
    "PyLong_AsLongLongAndOverflow",
    "PyLong_FromLongLong",
    "PyLong_FromUnsignedLongLong",
    "PyFloat_FromDouble",
    "PyBool_FromLong",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
    "PyErr_SetString",
    "Py_IncRef",
)
_OBJECTS: dict[str, object] = {
    "None": None,
    "NotImplemented": NotImplemented,
    "ZeroDivisionError": ZeroDivisionError,
    "int": int,
    "bool": bool,
    "True": True,
    "float": float,
    "tuple": tuple,
    "ndarray": np.ndarray,
}


@cache
def layout_is_known() -> bool:
    """Whether the layout of objects in memory is the one read here."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED") or sys.byteorder != "little":
        return False
    probe = np.arange(6, dtype=np.int32).reshape(2, 3)[:, :2]
    if object.__basicsize__ != _NUMBER or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    found = {at: ctypes.c_int64.from_address(id(probe) + at).value for at in (_TYPE, _DATA, _LENGTHS, _STRIDES, _DTYPE)}
    lengths, strides = ((ctypes.c_int64 * 2).from_address(found[at])[:] for at in (_LENGTHS, _STRIDES))
    flags = ctypes.c_int32.from_address(id(probe) + _FLAGS).value
    pair, number = (probe, None), np.int64(-5)
    return (
        found[_TYPE] == id(np.ndarray)
        and found[_DATA] == probe.__array_interface__["data"][0]
        and (tuple(lengths), tuple(strides)) == (probe.shape, probe.strides)
        and found[_DTYPE] == id(np.dtype(np.int32)) == id(probe.dtype)
        and all(_is_described(np.dtype(code)) for code in ("?", "i1", "u2", "i4", "u8", "f4", "f8"))
        and ctypes.c_int32.from_address(id(probe) + _NDIM).value == 2
        and flags & _ALIGNED == _ALIGNED
        and not flags & _PACKED
        and ctypes.c_int64.from_address(id(pair) + _SIZE).value == 2
        and ctypes.c_int64.from_address(id(pair) + _ITEMS).value == id(probe)
        and ctypes.c_int64.from_address(id(number) + _NUMBER).value == -5
    )


def begin_of(array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> int:
    """The address of an array's first element, by the fastest way available."""
    if layout_is_known():
        return ctypes.c_int64.from_address(id(array) + _DATA).value
    return int(array.ctypes.data)


def _is_described(dtype: np.dtype[np.generic]) -> bool:
    """Whether a dtype has its byte order and type number at the expected offsets."""
    order = ctypes.c_char.from_address(id(dtype) + _ORDER)
    number = ctypes.c_int32.from_address(id(dtype) + _TYPE_NUMBER)
    return order.value == dtype.byteorder.encode() and number.value == dtype.num


def kind_of(given: object) -> Kind:
    """The kind of an argument."""
    if isinstance(given, np.ndarray):
        if not given.flags.aligned or type(given) is not np.ndarray:
            raise NotPlain("an array that is not aligned, or of a class of its own")
        return Array(scalar_of(given.dtype), given.ndim, given.flags.c_contiguous)
    if isinstance(given, tuple):
        made_by = "" if type(given) is tuple else f"{type(given).__module__}:{type(given).__qualname__}"
        return Record(tuple(kind_of(item) for item in given), tuple(getattr(given, "_fields", ())), made_by)
    if isinstance(given, bool | np.bool_):
        return TRUTH
    if isinstance(given, np.generic):
        return scalar_of(given.dtype)
    if isinstance(given, int) and -(1 << 63) <= given < 1 << 63:
        return INT
    if isinstance(given, float):
        return FLOAT
    raise NotPlain(f"an argument of type {type(given)}")


def as_named(given: object) -> object:
    """An argument with the canonical dtypes of its kinds: NumPy has several types of the same size."""
    if isinstance(given, tuple):
        items = [as_named(item) for item in given]
        make = cast(Callable[..., object], type(given))
        return tuple(items) if type(given) is tuple else make(*items)
    if isinstance(given, np.ndarray):
        wanted = numpy_type(scalar_of(given.dtype))
        return given if given.dtype is wanted else given.view(wanted)
    if isinstance(given, np.generic):
        return numpy_type(scalar_of(given.dtype)).type(given)
    if type(given) is not int and isinstance(given, int) and not isinstance(given, bool):
        return int(given)
    return given


class Entry:
    """IR of a loop's entry for one list of argument kinds, and the names of its table.

    It is compiled without optimisation: optimising it would take LLVM a quarter of the loop's compile time, and save
    some hundredths of a microsecond a call.
    """

    def __init__(self, name: str, called: str, kinds: tuple[Kind, ...], result: Kind, exact: bool = False):
        """`exact`: a contiguous array does not match a strided kind, whose loop would be slower."""
        self.names: list[str] = []
        self._exact = exact
        self._out = Writer()
        self._table = f"table.{name}"
        out = self._out
        out.label("entry")
        overflow = out.put("alloca i32")
        count = out.put(f"icmp eq i64 %count, {len(kinds)}")
        self._expect(count)
        leaves: list[str] = []
        for number, kind in enumerate(kinds):
            address = out.put(f"getelementptr ptr, ptr %given, i64 {number}")
            leaves += self._read(out.put(f"load ptr, ptr {address}"), kind, overflow)
        self._call(called, leaves, kinds, result)
        out.label("miss")
        missed = self._object("NotImplemented")
        out.leave(f"ret ptr {missed}")
        body = "\n".join(out.lines)
        head = f"@{self._table} = global [{max(len(self.names), 1)} x ptr] zeroinitializer\n"
        parameters = "ptr %self, ptr %given, i64 %count"
        self.text = f"{head}define ptr @{name}({parameters}) nounwind noinline optnone {{\n{body}\n}}\n"

    def _entry(self, name: str) -> str:
        """Load an entry of the table."""
        if name not in self.names:
            self.names.append(name)
        address = self._out.put(f"getelementptr ptr, ptr @{self._table}, i64 {self.names.index(name)}")
        return self._out.put(f"load ptr, ptr {address}")

    def _object(self, name: str) -> str:
        """An object of the table as a new reference."""
        found = self._entry(name)
        self._out.do(f"call void {self._entry('Py_IncRef')}(ptr {found})")
        return found

    def _expect(self, truth: str) -> None:
        """Continue if `truth` holds; otherwise return NotImplemented."""
        held = self._out.name("held")
        self._out.fork(truth, held, "miss")
        self._out.label(held)

    def _field(self, of: str, offset: int, code: str = "ptr") -> str:
        return self._out.put(f"load {code}, ptr {self._out.put(f'getelementptr i8, ptr {of}, i64 {offset}')}")

    def _is(self, of: str, name: str) -> str:
        return self._out.put(f"icmp eq ptr {self._field(of, _TYPE)}, {self._entry(name)}")

    def _read(self, given: str, kind: Kind, overflow: str) -> list[str]:
        """The leaves of an argument, after a check of its kind."""
        if isinstance(kind, Array):
            return self._array(given, kind)
        if isinstance(kind, Record):
            self._expect(self._is(given, f"class {kind.made_by}" if kind.made_by else "tuple"))
            self._expect(self._out.put(f"icmp eq i64 {self._field(given, _SIZE, 'i64')}, {len(kind.items)}"))
            items = [(self._field(given, _ITEMS + 8 * number), item) for number, item in enumerate(kind.items)]
            return [leaf for address, item in items for leaf in self._read(address, item, overflow)]
        return [self._number(given, kind, overflow)]

    def _array(self, given: str, kind: Array) -> list[str]:
        out = self._out
        self._expect(self._is(given, "ndarray"))
        # compared by content: an unpickled array, as of a cached kernel, has a dtype object of its own
        wanted_type, dtype = self._entry(f"dtype {numpy_type(kind.item).str[1:]}"), self._field(given, _DTYPE)
        for offset, code in ((_TYPE_NUMBER, "i32"), (_ORDER, "i8")):
            pair = (self._field(dtype, offset, code), self._field(wanted_type, offset, code))
            self._expect(out.put(f"icmp eq {code} {pair[0]}, {pair[1]}"))
        self._expect(out.put(f"icmp eq i32 {self._field(given, _NDIM, 'i32')}, {kind.ndim}"))
        wanted = _ALIGNED | (_PACKED if kind.packed else 0)
        looked_at = wanted | (_PACKED if self._exact else 0)
        flags = out.put(f"and i32 {self._field(given, _FLAGS, 'i32')}, {looked_at}")
        self._expect(out.put(f"icmp eq i32 {flags}, {wanted}"))
        leaves = [self._field(given, _DATA)]
        for offset in (_LENGTHS,) if kind.packed else (_LENGTHS, _STRIDES):
            row = self._field(given, offset)
            leaves += [self._field(row, 8 * axis, "i64") for axis in range(kind.ndim)]
        return leaves

    def _number(self, given: str, kind: Scalar, overflow: str) -> str:
        """A Python number or, failing that, a NumPy scalar."""
        out = self._out
        mine, other, both = out.name("mine"), out.name("other"), out.name("both")
        python = {INT: "int", TRUTH: "bool", FLOAT: "float"}.get(kind)
        out.fork(self._is(given, python) if python else "false", mine, other)
        out.label(mine)
        first = "0"
        if kind == INT:
            first = out.put(f"call i64 {self._entry('PyLong_AsLongLongAndOverflow')}(ptr {given}, ptr {overflow})")
            self._expect(out.put(f"icmp eq i32 {out.put(f'load i32, ptr {overflow}')}, 0"))
        elif kind == TRUTH:
            first = out.put(f"icmp eq ptr {given}, {self._entry('True')}")
        elif python:
            first = self._field(given, _NUMBER, kind.code)
        ends = [out.name("end"), out.name("end")]
        out.label(ends[0])
        out.jump(both)
        out.label(other)
        self._expect(self._is(given, f"number {numpy_type(kind).str[1:]}"))
        second = self._field(given, _NUMBER, kind.stored)
        if kind == TRUTH:
            second = out.put(f"trunc i8 {second} to i1")
        out.label(ends[1])
        out.jump(both)
        out.label(both)
        nothing = "0.0" if kind.form == "f" else "0"
        first = nothing if first == "0" else first
        return out.put(f"phi {kind.code} [ {first}, %{ends[0]} ], [ {second}, %{ends[1]} ]")

    def _call(self, called: str, leaves: list[str], kinds: tuple[Kind, ...], result: Kind) -> None:
        out = self._out
        code = result_code(result)
        pairs = zip((code for kind in kinds for code in codes(kind)), leaves, strict=True)
        thread = out.put(f"call ptr {self._entry('PyEval_SaveThread')}()")
        call = f"call {code} @{called}({', '.join(f'{one} {leaf}' for one, leaf in pairs)})"
        found = ""
        if code == "void":
            out.do(call)
        else:
            found = out.put(call)
        failed = out.put("load i32, ptr @failed")
        out.do("store i32 0, ptr @failed")
        out.do(f"call void {self._entry('PyEval_RestoreThread')}(ptr {thread})")
        bad, good = out.name("bad"), out.name("good")
        out.fork(out.put(f"icmp ne i32 {failed}, 0"), bad, good)
        out.label(bad)
        text = self._entry("text division by zero")
        out.do(f"call void {self._entry('PyErr_SetString')}(ptr {self._entry('ZeroDivisionError')}, ptr {text})")
        out.leave("ret ptr null")
        out.label(good)
        wanted = codes(result)
        if len(wanted) > 1:
            found_parts = tuple(out.put(f"extractvalue {code} {found}, {at}") for at in range(len(wanted)))
        else:
            found_parts = (found,) if wanted else ()
        out.leave(f"ret ptr {self._boxed(Value(result, found_parts))}")

    def _boxed(self, value: Value) -> str:
        """A Python object for a value."""
        out, kind = self._out, value.kind
        if isinstance(kind, Array):
            raise NotPlain("a loop that gives an array")
        if isinstance(kind, Record):
            if not kind.items:
                return self._object("None")
            if kind.made_by:
                raise NotPlain("a loop that gives a named tuple")
            made = out.put(f"call ptr {self._entry('PyTuple_New')}(i64 {len(kind.items)})")
            for number, part in enumerate(parts(value)):
                box = self._boxed(part)
                out.put(f"call i32 {self._entry('PyTuple_SetItem')}(ptr {made}, i64 {number}, ptr {box})")
            return made
        if kind == TRUTH:
            wide = out.put(f"zext i1 {value.leaves[0]} to i64")
            return out.put(f"call ptr {self._entry('PyBool_FromLong')}(i64 {wide})")
        if kind.form == "f":
            return out.put(f"call ptr {self._entry('PyFloat_FromDouble')}(double {out.cast(value, FLOAT)})")
        name = "PyLong_FromLongLong" if kind.form == "i" else "PyLong_FromUnsignedLongLong"
        leaf = out.cast(value, Scalar(kind.form, 64))
        return out.put(f"call ptr {self._entry(name)}(i64 {leaf})")


_TEXTS: dict[str, ctypes.Array[ctypes.c_char]] = {}


def address_of(name: str) -> int:
    """The address of an object, function, type or text that the table names."""
    if name in _OBJECTS:
        return id(_OBJECTS[name])
    if name in _FUNCTIONS:
        return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
    what, _, rest = name.partition(" ")
    if what == "dtype":
        return id(np.dtype(rest))
    if what == "number":
        return id(np.dtype(rest).type)
    if what == "text":
        return ctypes.addressof(_TEXTS.setdefault(rest, ctypes.create_string_buffer(rest.encode())))
    if what != "class":
        raise NotPlain(f"no address of {name}")
    room, _, inner = rest.partition(":")
    found: object = importlib.import_module(room)
    for step in inner.split("."):
        found = getattr(found, step)
    return id(found)
