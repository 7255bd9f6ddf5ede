"""Serialisation of programs.

Functions become references (`functions`), compiled loops the operation that they implement, objects of the module's
text their index in the module, and module-level objects of our modules their name. Everything else is written as it is.
"""

import io
import pickle
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import cache, partial
from itertools import count
from types import FunctionType

import numpy as np

from kernbench.common.native_loops import NativeLoop, NumbaLoop
from kernbench.ptx.emulator.kept.functions import Referring, counting_on, named
from kernbench.ptx.emulator.program.closing import Closed, Closing
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Program, Watched
from kernbench.ptx.numerics.table import operation, operations_so_far
from kernbench.ptx.text.module import Kernel

# what recreates a value, and its arguments
Reduced = tuple[object, ...]
_OURS = "kernbench.ptx."


def to_bytes(program: Program) -> bytes:
    """Serialise a program that was just built; raises `pickle.PicklingError` and the like for unnamed contents."""
    file = io.BytesIO()
    _Writer(file, program).dump(program)
    return file.getvalue()


def from_bytes(data: bytes, kernel: Kernel, rebuild: Callable[[], Program]) -> Program:
    """Deserialise the program of a kernel; any error means that the bytes are useless.

    `rebuild` builds the program from the text, if steps with undefined-value tracking are needed.
    """
    found = _Reader(io.BytesIO(data), kernel, rebuild).load()
    if not isinstance(found, Program):
        raise pickle.UnpicklingError(f"a {type(found).__name__} is no program")
    return found


def given(kind: str, name: str | int) -> object:
    """Stands for what the kernel's module gives; its reader knows it."""
    raise NotImplementedError


def following(block: int) -> object:
    """Placeholder for the maker of a block's steps with undefined-value tracking."""
    raise NotImplementedError


def numeric(meaning: str, mods: dict[str, str], single: bool) -> object:
    """A lane-wise operation."""
    found = operation(meaning, mods)
    return found.single if single else found  # type: ignore[attr-defined]


class _Writer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, program: Program):
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._functions = Referring()
        self._operations = _operations()
        # values written as references, by identity; modules, the kernel and the program keep them alive
        self._referred: dict[int, Reduced] = {
            **{key: (named, where) for key, where in _named_things().items()},
            **{id(value): (given, where) for value, where in _given_values(program.kernel)},
            **{id(block.follow): (following, (block.number,)) for block in program.blocks},
        }

    def reducer_override(self, value: object) -> object:  # type: ignore[override]
        """How to recreate a value; the most frequent kinds come first."""
        if id(value) in self._operations:
            return numeric, self._operations[id(value)]
        if isinstance(value, FunctionType):
            return self._functions.reduce(value)
        kind: type = type(value)
        if id(value) in self._referred:
            return self._referred[id(value)]
        names = _fields(kind)
        if names is not None:
            return kind, tuple([getattr(value, name) for name in names])
        if isinstance(value, np.dtype) and value.isbuiltin == 1:
            # else each array gets a dtype object of its own, and loops, which compare types by identity, would be
            # recompiled
            return np.dtype, (value.str,)
        rule = _closed if isinstance(value, Closed) else _RULES.get(kind)
        return NotImplemented if rule is None else rule(value)


class _Reader(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, kernel: Kernel, rebuild: Callable[[], Program]):
        super().__init__(file)
        self._given = {where: value for value, where in _given_values(kernel)}
        self._rebuilt = cache(rebuild)

    def find_class(self, module: str, name: str) -> object:
        if module == __name__ and name in ("given", "following"):
            return getattr(self, f"_{name}_again")
        return super().find_class(module, name)

    def _given_again(self, kind: str, name: str | int) -> object:
        return self._given[kind, name]

    def _following_again(self, block: int) -> Callable[[], Watched]:
        return partial(self._followed, block)

    def _followed(self, block: int) -> Watched:
        """The steps of the same block of a program rebuilt from the same text, which has the same slots."""
        return self._rebuilt().blocks[block].watched


def _by_name(loop: object) -> object:
    """A compiled loop that is found in its module by name."""
    where = loop.__module__, str(getattr(loop, "__qualname__", ""))
    if getattr(sys.modules[where[0]], where[1], None) is not loop:
        raise pickle.PicklingError(f"{where} is not found by its name")
    return named, where


def _closed(value: object) -> object:
    """A closed record, whose class is created at run time.

    The function that finds blocks by lines is dropped: it is needed for decoding only, and holds all lines.
    """
    state = {**vars(value), "block_at": None} if isinstance(value, Decoding) else vars(value)
    return object.__new__, (type(value).__bases__[1],), state, None, None, close


def close(record: Closing, state: dict[str, object]) -> None:
    """Fill in a record and close it."""
    vars(record).update(state)
    record.close()


def _remembering(function: object) -> object:
    """A closure with a cache."""
    wrapped = getattr(function, "__wrapped__", None)
    named_so = isinstance(wrapped, FunctionType) and "<locals>" not in wrapped.__qualname__
    return NotImplemented if named_so else (cache, (wrapped,))


# rules for classes without a default
_RULES: dict[type, Callable[[object], object]] = {
    type(cache(len)): _remembering,
    count: lambda counter: (counting_on, (repr(counter),)),
    NativeLoop: _by_name,
    NumbaLoop: _by_name,
}


def _given_values(kernel: Kernel) -> Iterable[tuple[object, tuple[str, str | int]]]:
    """Objects of a module's text, with their index."""
    module = kernel.module
    yield kernel, ("kernel", "")
    yield module, ("module", "")
    yield from ((function, ("function", name)) for name, function in module.functions.items())
    yield from ((item, ("item", number)) for number, item in enumerate(module.items))
    yield from ((variable, ("parameter", number)) for number, variable in enumerate(kernel.function.params))


def _operations() -> dict[int, tuple[str, dict[str, str], bool]]:
    """The lane-wise operations of this process, by identity."""
    found = {}
    for (meaning, mods), made in operations_so_far().items():
        found[id(made)] = (meaning, dict(mods), False)
        if hasattr(made, "single"):
            found[id(made.single)] = (meaning, dict(mods), True)
    return found


def _named_things() -> dict[int, tuple[str, str]]:
    """Module-level objects of our modules, by identity."""
    modules = {name: module for name, module in sys.modules.items() if name.startswith(_OURS)}
    return {
        id(value): (name, called)
        for name, module in modules.items()
        for called, value in vars(module).items()
        if type(value).__module__.startswith(_OURS)
    }


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """The fields of a frozen class with slots, which is faster to construct than to restore; None for others."""
    parameters = getattr(kind, "__dataclass_params__", None)
    if not is_dataclass(kind) or parameters is None or not parameters.frozen or "__slots__" not in vars(kind):
        return None
    found = fields(kind)
    plain = all(field.init and not field.kw_only for field in found) and not hasattr(kind, "__post_init__")
    return tuple(field.name for field in found) if plain else None
