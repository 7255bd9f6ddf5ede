"""External functions that a kernel calls: printf's vprintf, failed assertions, malloc and free."""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.findings.reporter import thread_name
from kernbench.ptx.emulator.instructions.calls.formatting import formatted
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, LOCAL_BASE, SHARED_BASE
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch
from kernbench.ptx.text.module import Function

# maximal lines of printf in a run, and maximal bytes of a string
MOST_LINES = 10_000
_LONGEST = 4096
_WINDOW = 44


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call by `lanes`; `arguments` are bytes, a row for each lane."""

    batch: Batch
    lanes: Array
    arguments: list[Array]
    site: Site

    def numbers(self, index: int, kind: str = "u8") -> list[int]:
        """An argument of each lane as a number."""
        return [int(row.view(kind)[0]) for row in self.arguments[index]]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The result of a call: a number for each lane, or the reason why its lanes stop."""

    results: list[int] | None = None
    failure: str = ""


def call(name: str, batch: Batch, lanes: Array, arguments: list[Array], site: Site) -> Outcome:
    """Call an external function; an unknown one is reported, and returns zeros."""
    known = _FUNCTIONS.get(name)
    if known is None:
        batch.external_call(lanes, site, name)
        return Outcome()
    return known(Call(batch, lanes, arguments, site))


def needs_heap(functions: Mapping[str, Function]) -> bool:
    """Whether a module declares a function that uses the heap."""
    return any(name in _HEAP and function.body is None for name, function in functions.items())


def _print(call: Call) -> Outcome:
    """vprintf(format, arguments): adds the line to the run's output."""
    printed, counts = call.batch.launch.printed, []
    for lane, layout, address in zip(call.lanes, call.numbers(0), call.numbers(1), strict=True):
        reader = _Reader(call.batch, int(lane), address)
        text, taken = formatted(reader.text(layout), reader.value, reader.text)
        counts.append(taken)
        if len(printed) < MOST_LINES:
            printed.append(text.decode(errors="replace"))
    return Outcome(counts)


def _fail(call: Call) -> Outcome:
    """__assertfail(message, file, line, function, size): stops the threads."""
    reader = _Reader(call.batch, int(call.lanes[0]), 0)
    message, file, function = (reader.text(call.numbers(n)[0]).decode(errors="replace") for n in (0, 1, 3))
    line = call.numbers(2, "u4")[0]
    # Triton does not know the function of an assertion
    inside = f" of {function}" if function not in ("", "unknown") else ""
    return Outcome(failure=f"assertion '{message}'{inside} failed at {file}:{line}")


def _allocate(call: Call) -> Outcome:
    """malloc(size): null if the heap is full."""
    launch, heap, results = call.batch.launch, call.batch.launch.arena.heap, []
    assert heap is not None, "a module that takes memory has a heap"
    for lane, nbytes in zip(call.lanes, call.numbers(0), strict=True):
        name = f"memory of malloc({nbytes}) by {thread_name(call.batch, int(lane))} in PTX line {call.site.line}"
        made = heap.allocate(nbytes, name, launch.checks.checking)
        if made is not None:
            launch.checks.forget(made)
        results.append(0 if made is None else made.address)
    return Outcome(results)


def _free(call: Call) -> Outcome:
    """free(pointer): does nothing for null."""
    heap = call.batch.launch.arena.heap
    assert heap is not None, "a module that gives memory back has a heap"
    for lane, address in zip(call.lanes, call.numbers(0), strict=True):
        problem = heap.free(address) if address else ""
        if problem:
            call.batch.checks.bad_free(call.site, int(lane), address, problem)
    return Outcome()


_HEAP: dict[str, Callable[[Call], Outcome]] = {
    "malloc": _allocate,
    "_Znwm": _allocate,
    "_Znam": _allocate,
    "free": _free,
    "_ZdlPv": _free,
    "_ZdaPv": _free,
    "_ZdlPvm": _free,
    "_ZdaPvm": _free,
}
_FUNCTIONS: dict[str, Callable[[Call], Outcome]] = {"vprintf": _print, "__assertfail": _fail, **_HEAP}


class _Reader:
    """Reads memory as one lane sees it, and consecutive values from an address on."""

    def __init__(self, batch: Batch, lane: int, address: int):
        self._batch, self._lane, self._next = batch, lane, address

    def value(self, code: str) -> int | float:
        """The next value, aligned to its size."""
        size = struct.calcsize(code)
        self._next = -(-self._next // size) * size
        data = self._bytes(self._next, size).ljust(size, b"\0")
        self._reads(self._next, size)
        self._next += size
        number: int | float = struct.unpack(f"<{code}", data)[0]
        return number

    def text(self, address: int) -> bytes:
        """The string at an address, up to the final zero; a marker for an invalid pointer."""
        data = self._bytes(address, _LONGEST)
        text = data.partition(b"\0")[0] if data else b"(bad string)"
        self._reads(address, len(text) + 1)
        return text

    def _reads(self, address: int, nbytes: int) -> None:
        """Add a read to the footprint, if there is one."""
        footprint = self._batch.launch.arena.footprint
        if footprint is not None and address >> _WINDOW == GLOBAL_BASE >> _WINDOW:
            footprint.ranges(np.array([address - GLOBAL_BASE]), np.array([nbytes]), False)

    def _bytes(self, address: int, nbytes: int) -> bytes:
        """Bytes at a generic address; fewer at the end of memory."""
        base, space = _SPACES.get(address >> _WINDOW, (0, ""))
        if not space:
            return b""
        memory = self._batch.port.space(space)
        start = address - base
        if not 0 <= start < memory.size:
            return b""
        end = min(start + nbytes, memory.size)
        origin = int(memory.origins[self._lane]) if memory.origins.size else 0
        data: bytes = np.asarray(memory.words[1][origin + start : origin + end]).tobytes()
        return data


_SPACES = {
    GLOBAL_BASE >> _WINDOW: (GLOBAL_BASE, "global"),
    LOCAL_BASE >> _WINDOW: (LOCAL_BASE, "local"),
    SHARED_BASE >> _WINDOW: (SHARED_BASE, "shared"),
}
