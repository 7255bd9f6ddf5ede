"""Searches for the first instruction whose result differs between two devices.

Both devices run the kernel with a trace of its results (`tracing`) at marks that are set for each thread: first at
powers of sixteen, then between the last mark at which the thread agrees and the first at which it differs, until one
result is left. Of all threads the one that diverges first in a computation is reported, with the operands on both
devices.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import KernbenchError
from kernbench.ptx.comparing.registers import private_registers
from kernbench.ptx.comparing.tracing import (
    COMPUTED,
    MARKS,
    STORED,
    Traced,
    TracedKernel,
    empty_rows,
    ended,
    marks,
    operand_words,
    traced,
    writers_of,
)
from kernbench.ptx.launching.device_base import Extent
from kernbench.ptx.text.module import Instruction, Kernel
from kernbench.ptx.text.printer import instruction_text
from kernbench.ptx.text.types import TYPES
from kernbench.result.finding import SourceLocation

# rows for more threads would take too much memory
MOST_THREADS = 1 << 20
_FACTOR = 16
_ROUNDS = 40
# runs a traced kernel on a device, with rows as its last argument, and returns the rows
Runner = Callable[[Kernel, Array], Array]


class SearchError(KernbenchError):
    """The instruction was not found, and why."""


@dataclass(frozen=True)
class Value:
    """A register on both devices."""

    register: str
    type: str
    ours: str
    theirs: str

    @property
    def same(self) -> bool:
        """Whether both are equal."""
        return self.ours == self.theirs

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {"register": self.register, "type": self.type, "ours": self.ours, "theirs": self.theirs}

    def __str__(self) -> str:
        return (
            f"{self.register} = {self.ours}"
            if self.same
            else f"{self.register} = {self.ours} here, {self.theirs} there"
        )


@dataclass(frozen=True)
class Parting:
    """Where two devices diverge: the instruction, the thread, and its values.

    `result` is the first value that differs, and `count` its index among the thread's results. If an operand differs
    that no recorded instruction computed, an asynchronous one wrote it: `instruction` is that one, and `seen_at` the
    line at which its result was first used.
    """

    instruction: Instruction
    location: SourceLocation | None
    block: Extent
    thread: Extent
    count: int
    result: Value
    operands: tuple[Value, ...]
    seen_at: int
    threads: int
    note: str = ""

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "line": self.instruction.line,
            "text": instruction_text(self.instruction),
            "where": _location_data(self.location),
            "block": list(self.block),
            "thread": list(self.thread),
            "count": self.count,
            "result": self.result.to_dict(),
            "operands": [one.to_dict() for one in self.operands],
            "seen_at": self.seen_at,
            "threads": self.threads,
            "note": self.note,
        }

    def __str__(self) -> str:
        where = f" ({self.location})" if self.location else ""
        lines = [
            f"first difference: line {self.instruction.line}{where}, `{instruction_text(self.instruction)}`",
            f"  thread {self.thread} of block {self.block}, its result number {self.count:,}; "
            f"{self.threads:,} threads differ somewhere",
            f"  {self.result}",
        ]
        if self.seen_at != self.instruction.line:
            lines.append(f"  seen at line {self.seen_at}")
        lines += [f"  operand {one}" for one in self.operands]
        return "\n".join([*lines, *([f"  {self.note}"] if self.note else [])])


def _location_data(location: SourceLocation | None) -> dict[str, object] | None:
    """A source location as documents have it."""
    if location is None:
        return None
    return {"file": location.file, "line": location.line, "function": location.function, "text": location.text}


@dataclass(frozen=True)
class Launched:
    """A launch to be searched: extents, and which parameters are addresses that differ between the devices."""

    kernel: Kernel
    grid: Extent
    block: Extent
    addresses: tuple[str, ...] = ()
    loads_addresses: bool = False

    @property
    def threads(self) -> int:
        """Number of threads."""
        return prod(self.grid) * prod(self.block)

    def traced(self, watched: int | None = None) -> TracedKernel:
        """The kernel with its trace."""
        return traced(self.kernel, self.block, self.addresses, self.loads_addresses, watched)


def find_parting(launched: Launched, ours: Runner, theirs: Runner) -> Parting | None:
    """Where two devices diverge; None if all recorded results agree."""
    if launched.threads > MOST_THREADS:
        raise SearchError(
            f"{launched.threads:,} threads are too many to follow ({MOST_THREADS:,} at most): launch fewer blocks"
        )
    search = _Search(launched, ours, theirs)
    found = search.narrowed()
    return None if found is None else search.reported(*found)


@dataclass
class _Search:
    launched: Launched
    ours: Runner
    theirs: Runner

    def narrowed(self) -> tuple[TracedKernel, Array, Array, tuple[Array, Array]] | None:
        """Threads that differ, the index of the first result that does, and its values on both devices."""
        kernel = self.launched.traced()
        rows = empty_rows(self.launched.threads)
        rows[:, :4] = 1, _FACTOR, 0, MARKS
        a, b = self.ours(kernel.kernel, rows), self.theirs(kernel.kernel, rows)
        thresholds = np.minimum(float(_FACTOR) ** np.arange(MARKS), 2.0**31).astype(np.int64)
        low, high = _interval(a, b, np.broadcast_to(thresholds, (len(a), MARKS)), np.zeros(len(a), np.int64))
        threads = np.flatnonzero(high > 0)
        if not len(threads):
            return None
        low, high = low[threads], high[threads]
        for _ in range(_ROUNDS):
            step = np.maximum(1, -(-(high - low) // MARKS))
            at = low[:, None] + step[:, None] * np.arange(1, MARKS + 1)
            a, b = self._at(kernel.kernel, threads, at[:, 0], step)
            parted = _first(a, b)
            if (step == 1).all():
                return kernel, threads, at[np.arange(len(at)), parted], (_chosen(a, parted), _chosen(b, parted))
            high = at[np.arange(len(at)), parted]
            low = high - step
        raise SearchError("the results of a thread were other ones in each run: the kernel does not repeat itself")

    def _at(self, kernel: Kernel, threads: Array, first: Array, step: Array) -> tuple[Array, Array]:
        """The values of both devices at the marks of some threads."""
        rows = empty_rows(self.launched.threads)
        rows[threads, 0], rows[threads, 1], rows[threads, 2], rows[threads, 3] = first, 1, step, MARKS
        a, b = self.ours(kernel, rows), self.theirs(kernel, rows)
        return marks(a)[threads], marks(b)[threads]

    def reported(self, kernel: TracedKernel, threads: Array, counts: Array, found: tuple[Array, Array]) -> Parting:
        """The thread that diverges first in a computation, with its operands."""
        a, b = found
        results = {one.number: one for one in kernel.results}
        chosen = min(
            range(len(threads)), key=lambda i: (_rank(results.get(int(a[i, 1])), a[i], b[i]), counts[i], threads[i])
        )
        thread, count, mine, theirs = int(threads[chosen]), int(counts[chosen]), a[chosen], b[chosen]
        block, inside = self._where(thread)
        one = results.get(int(mine[1])) or results.get(int(theirs[1]))
        assert one is not None, "one of both devices has recorded a result there"
        if mine[1] != theirs[1]:
            note = _parted_ways(results, mine, theirs)
            value = Value(one.register, one.type, _text(one.type, mine[2:]), _text(one.type, theirs[2:]))
            return Parting(
                one.instruction, one.location, block, inside, count, value, (), one.instruction.line, len(threads), note
            )
        value = Value(one.register, one.type, _text(one.type, mine[2:]), _text(one.type, theirs[2:]))
        operands = self._operands(one, thread, count)
        origin, note = self._origin(one, operands)
        location = one.location if origin is one.instruction else self._location(kernel, origin)
        line = one.instruction.line
        return Parting(origin, location, block, inside, count, value, operands, line, len(threads), note)

    def _operands(self, one: Traced, thread: int, count: int) -> tuple[Value, ...]:
        watching = self.launched.traced(one.number)
        rows = empty_rows(self.launched.threads, watched=True)
        rows[thread, :4] = count, 1, 0, 1
        words = [operand_words(run(watching.kernel, rows))[thread] for run in (self.ours, self.theirs)]
        return tuple(
            Value(name, kind, _text(kind, words[0][at]), _text(kind, words[1][at]))
            for at, (name, kind) in enumerate(watching.kept)
        )

    def _origin(self, one: Traced, operands: tuple[Value, ...]) -> tuple[Instruction, str]:
        """The instruction to blame: a different one if an operand differs whose writer was not recorded.

        Addresses that each device chooses may differ.
        """
        launched = self.launched
        recorded = {result.register for result in launched.traced().results if result.kind != STORED}
        private = private_registers(launched.kernel.function, launched.addresses, launched.loads_addresses)
        differing = [value for value in operands if not value.same and value.register not in private]
        for value in differing:
            writers = writers_of(self.launched.kernel, value.register)
            if value.register not in recorded and writers:
                lines = ", ".join(str(line) for line in sorted({writer.line for writer in writers}))
                note = f"operand {value.register} differs, which line {lines} writes" if len(writers) > 1 else ""
                return writers[-1], note
        if one.kind == STORED:
            return one.instruction, "the value that is stored differs, and nothing recorded before it"
        if one.kind != COMPUTED:
            return one.instruction, "the value came from memory or from another thread: it differed there before"
        return one.instruction, ""

    @staticmethod
    def _location(kernel: TracedKernel, instruction: Instruction) -> SourceLocation | None:
        return next((one.location for one in kernel.results if one.instruction is instruction), None)

    def _where(self, thread: int) -> tuple[Extent, Extent]:
        """Block and thread from a thread's number in the grid."""
        number, inside = divmod(thread, prod(self.launched.block))
        return _coordinates(number, self.launched.grid), _coordinates(inside, self.launched.block)


def _rank(one: Traced | None, mine: Array, theirs: Array) -> int:
    """Computations first, then values of unrecorded origin, then values from elsewhere."""
    if one is None or mine[1] != theirs[1]:
        return 3
    return {COMPUTED: 0, STORED: 1}.get(one.kind, 2)


def _parted_ways(results: dict[int, Traced], mine: Array, theirs: Array) -> str:
    """The devices run different instructions, after a branch that no recorded result explains."""
    texts = []
    for words, whose in ((mine, "here"), (theirs, "there")):
        one = results.get(int(words[1]))
        texts.append(f"{whose} line {one.instruction.line}" if one is not None else f"{whose} the thread has ended")
    return f"the thread takes another way: {', '.join(texts)}"


def _coordinates(number: int, extent: Extent) -> Extent:
    return number % extent[0], number // extent[0] % extent[1], number // (extent[0] * extent[1])


def _chosen(found: Array, parted: Array) -> Array:
    one: Array = found[np.arange(len(found)), parted]
    return one


def _first(a: Array, b: Array) -> Array:
    """The first mark at which each thread's hash differs; the last one if none does."""
    differs = a[:, :, 0] != b[:, :, 0]
    differs[:, -1] = True
    found: Array = differs.argmax(axis=1)
    return found


def _interval(a: Array, b: Array, at: Array, low: Array) -> tuple[Array, Array]:
    """The interval in which each thread diverges: (last equal, first different]; (0, 0) if it agrees throughout."""
    differs = marks(a)[:, :, 0] != marks(b)[:, :, 0]
    some = differs.any(axis=1)
    first = differs.argmax(axis=1)
    index = np.arange(len(a))
    before = np.where(first > 0, at[index, np.maximum(first - 1, 0)], low)
    # a thread that agrees at all marks it reached may diverge after the last of them
    ends_a, ends_b = ended(a).astype(np.int64), ended(b).astype(np.int64)
    tail = ~some & (ends_a != ends_b).any(axis=1)
    longest = np.maximum(ends_a[:, 0], ends_b[:, 0])
    reached = np.where(at < longest[:, None], at, low[:, None]).max(axis=1)
    low = np.where(some, before, np.where(tail, reached, 0))
    high = np.where(some, np.minimum(at[index, first], np.maximum(longest, before + 1)), np.where(tail, longest, 0))
    return low, high


_FORMATS = {("f", 32): "<f", ("f", 64): "<d", ("f", 16): "<e"}


def _text(kind: str, words: Array) -> str:
    """The bits of a register, and their numeric value if the type is a float or may be an f32."""
    bits = TYPES[kind].bits
    if bits == 1:
        return "true" if words[0] else "false"
    raw = int(words[0]) | (int(words[1]) << 32 if bits == 64 else 0)
    shown = f"{raw:#0{2 + bits // 4}x}"
    known = _FORMATS.get((TYPES[kind].kind, bits))
    if kind == "b32":
        known = "<f"
    if known is None or kind == "bf16":
        return shown
    (number,) = struct.unpack(known, raw.to_bytes(bits // 8, "little"))
    return f"{shown} ({number:.9g})"
