"""Functions that a kernel calls and no module defines: printf's vprintf and the failure of a device-side assert."""

import re
import struct
from collections.abc import Callable
from typing import Any

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, LOCAL_BASE

# lines that printf may leave in a run, and bytes of a string
MOST_LINES = 10_000
_LONGEST = 4096
_CONVERSION = re.compile(rb"%[-+ #0]*(\*|\d*)(?:\.(\*|\d*))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcsp%])")


def call(name: str, batch: Any, lanes: Array, arguments: list[Array]) -> str:
    """Run an external function for `lanes`; `arguments` are bytes, a row a lane. A message if the lanes end here."""
    known = _FUNCTIONS.get(name)
    if known is None:
        batch.launch.external_call(name)
        return ""
    return known(batch, lanes, arguments)


def _print(batch: Any, lanes: Array, arguments: list[Array]) -> str:
    """vprintf(format, arguments): the lines go to the run."""
    printed = batch.launch.printed
    for number, lane in enumerate(lanes):
        if len(printed) >= MOST_LINES:
            break
        layout = _string(batch, int(arguments[0][number].view("u8")[0]))
        place = int(arguments[1][number].view("u8")[0])
        printed.append(_formatted(batch, layout, int(lane), place))
    return ""


def _fail(batch: Any, lanes: Array, arguments: list[Array]) -> str:
    """__assertfail(message, file, line, function, size): the threads stop."""
    message, file, function = (_text(batch, arguments[n][0]) for n in (0, 1, 3))
    line = int(arguments[2][0].view("u4")[0])
    return f"assertion '{message}' of {function} failed at {file}:{line}"


_FUNCTIONS: dict[str, Callable[[Any, Array, list[Array]], str]] = {"vprintf": _print, "__assertfail": _fail}


def _text(batch: Any, pointer: Array) -> str:
    return _string(batch, int(pointer.view("u8")[0])).decode(errors="replace")


def _string(batch: Any, address: int) -> bytes:
    """The characters at a global address, up to the final zero; a pointer to nowhere gives a mark."""
    arena = batch.launch.arena
    start = address - GLOBAL_BASE
    if not 0 <= start < arena.used:
        return b"(bad string)"
    data: bytes = arena.words[1][start : start + _LONGEST].tobytes()
    return data.partition(b"\0")[0]


def _formatted(batch: Any, layout: bytes, lane: int, address: int) -> str:
    """C's printf: values lie one after the other, each at a multiple of its size."""
    place = address - LOCAL_BASE

    def value(kind: str) -> Any:
        nonlocal place
        size = struct.calcsize(kind)
        place = -(-place // size) * size
        data = batch.frames.bytes_of(lane, place, size)
        place += size
        return struct.unpack(f"<{kind}", data)[0]

    def convert(match: re.Match[bytes]) -> bytes:
        width, precision, length, letter = match.groups()
        if letter == b"%":
            return b"%"
        stars = [value("i") for star in (width, precision) if star == b"*"]
        shape = match[0].decode().replace(match[3].decode() if length else "\0", "")
        argument = _argument(batch, letter.decode(), (length or b"").decode(), value)
        return (_python(shape) % (*stars, argument)).encode()

    return _CONVERSION.sub(convert, layout).decode(errors="replace")


def _argument(batch: Any, letter: str, length: str, value: Callable[[str], Any]) -> Any:
    if letter in "eEfFgGaA":
        return value("d")
    if letter in "sp":
        pointer = value("Q")
        return _string(batch, pointer).decode(errors="replace") if letter == "s" else hex(pointer)
    wide = length in ("l", "ll", "j", "z", "t")
    return value(("q" if wide else "i") if letter in "dic" else ("Q" if wide else "I"))


def _python(shape: str) -> str:
    """Conversions that Python's % does not know, by their nearest."""
    return shape[:-1] + {"p": "s", "a": "e", "A": "E", "u": "d"}.get(shape[-1], shape[-1])
