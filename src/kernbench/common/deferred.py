"""Loops that run as Python as long as that takes less time than compiling them.

On a fresh machine a small run would finish long before its loops are compiled. So a loop with few rows runs as its
Python function, until it has taken so many seconds, in this and earlier processes, that compiling would have paid off.
A loop that is compiled or cached is never run as Python. Either way the same function runs on the same arrays, with the
same results (docs/adr/0069).

NumPy integers are as wide as those of their array; numba computes with 64 bits. If a NumPy integer overflows, the
arrays are restored and the compiled loop runs. Restoring would undo what other threads write into the same arrays, so
loops that run next to other threads (`beside_others`) are compiled. KERNBENCH_COMPILE=always compiles every loop at its
first call.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import FunctionType
from typing import Generic, cast

import numpy as np

from kernbench.common.compiled import ALWAYS, COMPILE, Result, at_once
from kernbench.common.native_loops import NativeLoop, native_loop

# rows above which a call never runs as Python: some tenths of a second
MOST_ROWS = 50_000
# seconds of a loop as Python, in all processes together, after which it is compiled
MOST_SECONDS = 3.0
_MILLISECOND = 1e-3
# per thread: whether other threads work on the same arrays
_HERE = threading.local()


def deferred(rows: Callable[..., int], wraps: bool = False) -> Callable[[Callable[..., Result]], "Deferred[Result]"]:
    """A `loop` that runs as Python at first; `rows` gives the number of rows of its arguments.

    `wraps`: it multiplies hashes, which wrap around on purpose; its other integers are 64 bits wide.
    """
    return lambda function: Deferred(function, rows, wraps)


class Deferred(Generic[Result]):
    """A loop that may not be compiled yet."""

    def __init__(self, function: Callable[..., Result], rows: Callable[..., int], wraps: bool = False):
        self.py_func = function
        self._compiled = native_loop(function)
        self._rows = rows
        self._errors = {"divide": "raise", "invalid": "raise", "over": "ignore" if wraps else "raise"}
        self._seconds = 0.0

    def __call__(self, *arguments: object) -> Result:
        """Run the loop, as Python or compiled."""
        if self._is_compiled(arguments) or self._rows(*arguments) > MOST_ROWS or self._spent() > MOST_SECONDS:
            return self._compiled(*arguments)
        before = [(array, array.copy()) for array in _arrays(arguments)]
        begin = time.process_time()
        try:
            with np.errstate(**self._errors):  # type: ignore[arg-type]
                result = self._plain(*arguments)
        except (FloatingPointError, OverflowError):
            for array, values in before:
                array[...] = values
            return self._compiled(*arguments)
        self._spend(time.process_time() - begin)
        return cast(Result, _plain_result(result))

    def _is_compiled(self, arguments: tuple[object, ...]) -> bool:
        """Whether it is compiled or cached, or has to be compiled now."""
        wanted = at_once() or getattr(_HERE, "beside_others", False)
        return self._compiled.is_compiled or wanted or self._compiled.is_kept(arguments)

    @cached_property
    def _tally(self) -> Path | None:
        """A file that grows by a byte for each millisecond in Python; None without a cache."""
        return self._compiled.beside(".python")

    def _spent(self) -> float:
        if self._tally is not None:
            with suppress(OSError):
                return self._tally.stat().st_size * _MILLISECOND
        return self._seconds

    def _spend(self, seconds: float) -> None:
        self._seconds += seconds
        if self._tally is not None:
            with suppress(OSError):
                self._tally.parent.mkdir(parents=True, exist_ok=True)
                with self._tally.open("ab") as file:
                    file.write(b"." * round(seconds / _MILLISECOND))

    @cached_property
    def _plain(self) -> Callable[..., object]:
        return in_python(self.py_func, {})


@contextmanager
def beside_others() -> Iterator[None]:
    """Inside, no loop of this thread runs as Python, because other threads work on the same arrays."""
    before = getattr(_HERE, "beside_others", False)
    _HERE.beside_others = True
    try:
        yield
    finally:
        _HERE.beside_others = before


@contextmanager
def compiled_at_once() -> Iterator[None]:
    """Inside, no loop runs as Python."""
    before = os.environ.get(COMPILE, "")
    os.environ[COMPILE] = ALWAYS
    try:
        yield
    finally:
        os.environ[COMPILE] = before


def in_python(function: Callable[..., object], made: dict[object, Callable[..., object]]) -> Callable[..., object]:
    """A function that runs as Python, together with all compiled functions it calls."""
    if function in made:
        return made[function]
    plain = cast(FunctionType, function)
    own = dict(plain.__globals__)
    made[function] = FunctionType(plain.__code__, own, plain.__name__, plain.__defaults__, plain.__closure__)
    for name in plain.__code__.co_names:
        called = own.get(name)
        if isinstance(called, NativeLoop):
            own[name] = in_python(called.py_func, made)
        elif isinstance(called, FunctionType) and called.__module__.startswith("kernbench."):
            own[name] = in_python(called, made)
    return made[function]


def _arrays(arguments: object) -> Iterator[np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    """The writable arrays among arguments, also within tuples."""
    if isinstance(arguments, tuple):
        for one in arguments:
            yield from _arrays(one)
    elif isinstance(arguments, np.ndarray) and arguments.flags.writeable:
        yield arguments


def _plain_result(result: object) -> object:
    """Converts NumPy scalars to Python numbers, as compiled loops return them."""
    if isinstance(result, tuple):
        return tuple(_plain_result(one) for one in result)
    return result.item() if isinstance(result, np.generic) else result
