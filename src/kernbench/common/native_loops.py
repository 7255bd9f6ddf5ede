"""Loops that Python calls: compiled for the kinds of their arguments, cached on disk, or left to numba.

A loop whose code is not plain for some argument kinds is compiled by numba for those; it is the same function either
way. Loops compiled by numba may call one of these; numba then compiles it, too.
"""

import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import RLock
from typing import Generic, NamedTuple, cast

import numpy as np

from kernbench.common import compiled
from kernbench.common.compiled import Result
from kernbench.common.kept import Numba, RoomFolder, Turn
from kernbench.common.native.adapter import adapter
from kernbench.common.native.entry import Entry, as_named, kind_of, layout_is_known
from kernbench.common.native.expressions import Function
from kernbench.common.native.functions import Module
from kernbench.common.native.kinds import EMPTY, Kind, NotPlain
from kernbench.common.native.machine import (
    Code,
    loaded,
    located,
    machine_name,
    pointers_are_plain,
    quickly_translated,
    translated,
)
from kernbench.common.native.trials import Trial

_LOG = logging.getLogger(__name__)
SUFFIX = ".loop"
# length of the SHA-256 hex digest that a cache file begins with
_SUM = 64
# only one thread compiles at a time
_ONE_AT_A_TIME = RLock()


class _Made(NamedTuple):
    """Machine code of a loop for one list of argument kinds, and the names of its table."""

    code: bytes
    table: list[str]


def native_loop(function: Callable[..., Result]) -> "NativeLoop[Result]":
    """A loop over arrays that its caller allocated, in plain Python (docs/adr/0076), cached on disk."""
    return NativeLoop(function)


def patient_loop(function: Callable[..., Result]) -> "NativeLoop[Result]":
    """A loop that many runs need only briefly: compiled quickly, and optimised when that pays off (docs/adr/0128)."""
    made = NativeLoop(function)
    made.is_patient = True
    return made


class NativeLoop(Generic[Result]):
    """A loop, with its machine code for each list of argument kinds it was called with."""

    # called from other loops, it is not inlined
    is_loop = True
    # whether it is optimised only after it has run long enough
    is_patient = False

    def __init__(self, function: Callable[..., Result]):
        self.py_func = function
        self.__name__, self.__qualname__ = function.__name__, function.__qualname__
        self.__module__, self.__doc__ = function.__module__, function.__doc__
        # each entry checks its arguments, and returns NotImplemented if it was compiled for other kinds
        self.entries: list[Code] = []
        self._known: dict[tuple[Kind, ...], Code | None] = {}

    @property
    def signatures(self) -> list[tuple[Kind, ...]]:
        """The argument kinds that it was called with."""
        return list(self._known)

    @property
    def is_compiled(self) -> bool:
        """Whether this process has compiled it or loaded it from the cache, for some argument kinds."""
        return bool(self._known) or "by_numba" in vars(self)

    def is_kept(self, given: tuple[object, ...]) -> bool:
        """Whether machine code for the kinds of these arguments is in the cache."""
        try:
            path = self._room.path(self._name(tuple(kind_of(one) for one in given)))
        except NotPlain:
            return False
        return path is not None and path.exists()

    def beside(self, suffix: str) -> Path | None:
        """A file next to its cached code, shared by all argument kinds; None without a cache."""
        return self._room.path("all", suffix)

    def __call__(self, *given: object) -> Result:
        """Run the loop."""
        for entry in self.entries:
            found = entry(*given)
            if found is not NotImplemented:
                return found  # type: ignore[return-value]
        return self._called_otherwise(given)

    def _called_otherwise(self, given: tuple[object, ...]) -> Result:
        """The slow path of a call: argument kinds that are new, or that only numba compiles."""
        entry = self._entry(given)
        if entry is not None:
            found = entry(*(as_named(one) for one in given))
            if found is not NotImplemented:
                return cast(Result, found)
        return cast(Result, self.by_numba(*given))

    def _entry(self, given: tuple[object, ...]) -> Code | None:
        try:
            kinds = tuple(kind_of(one) for one in given)
        except NotPlain:
            return None
        if kinds not in self._known:
            with _ONE_AT_A_TIME:
                # another thread may have compiled it meanwhile
                if kinds not in self._known:
                    entry = self._found(kinds)
                    if entry is not None:
                        self.entries.append(entry)
                    self._known[kinds] = entry
        return self._known[kinds]

    def _found(self, kinds: tuple[Kind, ...]) -> Code | None:
        """The machine code for some argument kinds, cached or compiled now; None if numba has to compile it."""
        if not layout_is_known() or not pointers_are_plain():
            return None
        with compiled.counted():
            try:
                name = self._name(kinds)
                made = self._room.kept(name)
                if made is None and self.is_patient and not compiled.at_once():
                    with suppress(NotPlain, RuntimeError):
                        return self._on_trial(name, kinds)
                return self._optimised(name, kinds, made)
            except (NotPlain, RuntimeError, OSError) as error:
                _LOG.info("the loop %s is left to numba: %s", self.__qualname__, error)
                return None

    def _optimised(self, name: str, kinds: tuple[Kind, ...], made: _Made | None = None) -> Code:
        made = made or self._room.kept_or_made(name, lambda: self._made(name, kinds))
        return loaded(made.code, name, made.table)

    def _on_trial(self, name: str, kinds: tuple[Kind, ...]) -> Trial:
        """Code that is compiled quickly, and replaced once it has run long enough."""
        kept_as = f"quick_{name}"
        make = partial(self._made, name, kinds, quickly=True)
        made = self._room.kept(kept_as) or self._room.kept_or_made(kept_as, make)
        code = loaded(made.code, name, made.table, kept_as)
        tally = self._room.path(kept_as, ".spent")
        return Trial(code, len(made.code), tally, partial(self._settled, name, kinds))

    def _settled(self, name: str, kinds: tuple[Kind, ...], trial: Trial) -> None:
        """Replace code on trial by optimised code."""
        with _ONE_AT_A_TIME, compiled.counted(), suppress(NotPlain, RuntimeError, OSError):
            if trial in self.entries:
                code = self._optimised(name, kinds, self._room.kept(name))
                self.entries[self.entries.index(trial)] = self._known[kinds] = code

    def _name(self, kinds: tuple[Kind, ...]) -> str:
        """A unique name for the machine code.

        It contains versions, as other versions of Python or NumPy may lay out objects differently.
        """
        line = cast(Numba, self.py_func).__code__.co_firstlineno
        objects = f"{sys.implementation.cache_tag} {np.__version__}"
        text = f"{self.__module__} {self.__qualname__} {line} {kinds!r} {machine_name()} {objects}"
        return f"loop_{sha256(text.encode()).hexdigest()[:24]}"

    @cached_property
    def by_numba(self) -> Numba:
        """The same loop compiled by numba."""
        return compiled.loop(self.py_func)

    @property
    def _numba_type_(self) -> Numba:
        """numba's type for it, in a loop compiled by numba."""
        return self.by_numba._numba_type_

    @cached_property
    def _room(self) -> "KeptCode":
        return KeptCode(self.py_func, self.__qualname__)

    def _made(self, name: str, kinds: tuple[Kind, ...], quickly: bool = False) -> _Made:
        if cast(Numba, self.py_func).__closure__ or self.__name__ == "<lambda>":
            raise NotPlain("its name, which its machine code is kept by, does not distinguish it from others")
        module = Module()
        written = module.called(cast(Function, self.py_func), kinds)
        entry = Entry(name, written.name, kinds, written.result)
        translate = quickly_translated if quickly else translated
        return _Made(translate(module.text + entry.text), entry.names)


def numba_loop(function: Callable[..., Result], **options: object) -> "NumbaLoop[Result]":
    """A loop over arrays that its caller allocated, for code that only numba compiles.

    Cached so that it runs without numba.
    """
    return NumbaLoop(function, options)


class NumbaLoop(NativeLoop[Result]):
    """A loop compiled once by numba: its machine code is cached with an entry of our own (docs/adr/0089)."""

    def __init__(self, function: Callable[..., Result], options: dict[str, object]):
        super().__init__(function)
        self._options = options

    @cached_property
    def by_numba(self) -> Numba:
        """The same loop as called through numba."""
        return compiled.loop(self.py_func, **self._options)

    def _made(self, name: str, kinds: tuple[Kind, ...], quickly: bool = False) -> _Made:
        called, text = compiled.by_numba().text_of(self.py_func, kinds, self._options)
        entry = Entry(name, f"adapter.{name}", kinds, EMPTY, exact=True)
        around = Module().text + adapter(text, called, kinds, f"adapter.{name}") + entry.text
        return _Made(translated(around, text, name), entry.names)


def row_loop(function: Callable[..., Result], written_as: str) -> "RowLoop[Result]":
    """A loop over the lanes of rows, independent of each other; `written_as` is its source text."""
    vars(function)["written_as"] = written_as
    return RowLoop(function, {"error_model": "numpy"})


class RowLoop(NumbaLoop[Result]):
    """A loop over rows: vectorised by our own compiler if all it calls is plain, else compiled by numba."""

    is_patient = True

    def _made(self, name: str, kinds: tuple[Kind, ...], quickly: bool = False) -> _Made:
        try:
            module = Module(as_numpy=True)
            written = module.called(cast(Function, self.py_func), kinds)
        except NotPlain as error:
            if quickly:
                raise
            _LOG.info("the loop %s is compiled by numba: %s", self.__qualname__, error)
            return super()._made(name, kinds)
        entry = Entry(name, written.name, kinds, written.result)
        text = module.text + entry.text
        return _Made(quickly_translated(text) if quickly else translated(text, vectorised=True), entry.names)


class KeptCode:
    """Cached machine code, in the cache folder of a function's module."""

    def __init__(self, function: Callable[..., object], qualname: str):
        self._function = function
        self._stem = f"{function.__module__.rpartition('.')[2]}.{qualname}".replace("<", "_").replace(">", "_")

    def code(self, name: str, text: str, table: list[str], make: bool = True) -> Code | None:
        """Machine code of an IR text, with the names of its table; None if it is not cached and `make` is false."""
        with compiled.counted():
            try:
                made = self.kept(name)
                if made is None and make:
                    made = self.kept_or_made(name, lambda: _Made(translated(text), table))
                return None if made is None else loaded(made.code, name, made.table)
            except (RuntimeError, OSError) as error:
                _LOG.info("no machine code of %s: %s", self._stem, error)
                return None

    def addresses(self, texts: dict[str, str], make: bool) -> dict[str, int]:
        """Addresses of functions that only machine code calls, by name: of those in the cache or, with `make`, of all.

        Each function is the only exported symbol of its text.
        """
        with compiled.counted():
            try:
                codes = {name: self._plain_code(name, text, make) for name, text in texts.items()}
                return located({name: found for name, found in codes.items() if found is not None})
            except (RuntimeError, OSError) as error:
                _LOG.info("no machine code of %s: %s", self._stem, error)
                return {}

    def _plain_code(self, name: str, text: str, make: bool) -> bytes | None:
        made = self.kept(name)
        if made is None and make:
            made = self.kept_or_made(name, lambda: _Made(translated(text, optimised=False), []))
        return None if made is None else made.code

    def functions(self, makers: dict[str, Callable[[str], str]]) -> dict[str, int]:
        """Addresses of functions that only machine code calls, by name; `makers` give their texts, if not cached.

        Each function is the only exported symbol of its text. Unlike `addresses` it optimises, and errors are raised.
        """
        with compiled.counted():
            codes = {}
            for name, make in makers.items():
                made = self.kept(name) or self.kept_or_made(name, partial(self._optimised_function, name, make))
                codes[name] = made.code
            return located(codes)

    @staticmethod
    def _optimised_function(name: str, make: Callable[[str], str]) -> _Made:
        return _Made(translated(make(name), vectorised=True), [])

    def path(self, name: str, suffix: str = SUFFIX) -> Path | None:
        """The cache file of machine code with some name; None without a cache."""
        if not compiled.folder():
            return None
        room = RoomFolder(self._function, compiled.folder(), compiled._PACKAGE)
        return Path(room.get_cache_path(), f"{self._stem}-{room.get_disambiguator()}.{name}{suffix}")

    def kept(self, name: str) -> _Made | None:
        """The cached machine code; None if it is missing or damaged."""
        path = self.path(name)
        with suppress(OSError, ValueError, KeyError, TypeError):
            data = path.read_bytes() if path else b""
            if sha256(data[_SUM:]).hexdigest().encode() == data[:_SUM]:
                head, _, code = data[_SUM:].partition(b"\n")
                return _Made(code, [str(entry) for entry in json.loads(head)["table"]])
        return None

    def kept_or_made(self, name: str, make: Callable[[], _Made]) -> _Made:
        """Compile it and write it to the cache, unless another process does at the same time.

        Then load what that writes.
        """
        path = self.path(name, ".lock")
        if path is None:
            return make()
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
        turn = Turn(str(path), compiled.counted)
        turn.take()
        try:
            made = self.kept(name)
            if made is None:
                made = make()
                self._keep(name, made)
            return made
        finally:
            turn.give_up()

    def _keep(self, name: str, made: _Made) -> None:
        path = self.path(name)
        data = json.dumps({"table": made.table}).encode() + b"\n" + made.code
        with suppress(OSError):
            assert path is not None
            with NamedTemporaryFile(dir=path.parent, prefix=".loop-", delete=False) as file:
                file.write(sha256(data).hexdigest().encode() + data)
            os.replace(file.name, path)
