"""The errors users see: one root, and one class for each answer to "whose mistake is it"; and the lines of others."""

import dis
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from traceback import walk_tb
from types import FrameType, TracebackType
from typing import Any

# largest number of characters of a kernel's error that a finding shows
SHOWN_OF_KERNELS = 2000
# the two instructions of one that Python 3.11 joined
_JOINED = 2


class KernbenchError(Exception):
    """Root of all errors that kernbench raises on purpose."""


class MisuseError(KernbenchError):
    """The caller asked for something invalid: a bad argument, file, name or value."""


class OtherHardwareError(MisuseError):
    """The kernel was compiled for other hardware than the device."""


class MachineError(MisuseError):
    """A machine description that cannot be used; says the key, the value and what is allowed."""


class BenchError(MisuseError):
    """A bench that cannot be found, loaded or run with these parameters."""


class CacheError(MisuseError):
    """Compiled loops that cannot be exported, or a file of them that cannot be imported."""


class KernelError(KernbenchError):
    """A kernel did something undefined; inside a launch the error becomes a finding of this `kind`.

    `where` is the kernel's source location (a `result.SourceLocation`), None if unknown.
    """

    def __init__(self, kind: str, message: str, hint: str = "", where: Any = None):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        location = f"{self.where}: " if self.where is not None else ""
        return f"{location}{self.message}" + (f" ({self.hint})" if self.hint else "")


def said(error: BaseException, most: int | None = None) -> str:
    """An error as text: its type and message, truncated to `most` characters.

    If the error's `__str__` itself raises an error, the text says so.
    """
    name = type(error).__name__
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as another:
        return f"{name}, which cannot say why: its __str__ raises {type(another).__name__}"
    if most is not None and len(text) > most:
        text = f"{text[:most]}... ({len(text):,} characters in all)"
    return f"{name}: {text}" if text else name


def was_raised_by_kernel(error: BaseException) -> bool:
    """Whether an exception that ends coroutines (such as GreenletExit) was raised by the kernel's own code."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and not str(at.tb_frame.f_globals.get("__name__", "")).startswith("kernbench.")


def unknown(what: str, name: object, known: Iterable[object]) -> str:
    """The message for an unknown name: it lists the known names and suggests a close match."""
    names = [str(k) for k in known]
    close = get_close_matches(str(name), names, n=1)
    guess = f" Did you mean {close[0]!r}?" if close else ""
    return f"unknown {what} {name!r}; known: {', '.join(names)}.{guess}"


def traced(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """Each frame of the traceback with its line, outermost first.

    Python 3.11 executes the last instruction of one line and the first of the next as one, depending on how often the
    code has run: a variable that has no value in the second line is then an error of the first.
    """
    trace = error.__traceback__
    for frame, line in walk_tb(trace):
        is_last = trace is not None and trace.tb_next is None
        yield frame, (_line_of_variable(error, trace) or line) if is_last and type(error) is UnboundLocalError else line
        trace = trace.tb_next if trace is not None else None


def _line_of_variable(error: BaseException, trace: TracebackType | None) -> int | None:
    """The line in which the variable is read that has no value."""
    assert trace is not None
    following = (one for one in dis.get_instructions(trace.tb_frame.f_code) if one.offset >= trace.tb_lasti)
    for _, instruction in zip(range(_JOINED), following, strict=False):
        reads = instruction.opname.startswith(("LOAD_FAST", "DELETE_FAST"))
        if reads and f"'{instruction.argval}'" in str(error) and instruction.positions is not None:
            return instruction.positions.lineno
    return None
