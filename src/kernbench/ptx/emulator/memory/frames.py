"""Frames: the local memory of threads, where called functions keep their parameters and variables."""

from typing import Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.fragment import Fragment, Frame, Transfer
from kernbench.ptx.emulator.memory.arena import NOTHING, POISON, UNWRITTEN, WRITTEN, views
from kernbench.ptx.emulator.memory.port import Space
from kernbench.ptx.emulator.memory.stack import STACK_BYTES, Stack
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.emulator.program.program import Code


class UndefinedFlags(Protocol):
    """Which bytes of registers are undefined, by bank and row."""

    def keep(self, rows: dict[str, list[int]], lanes: Array, kept: dict[tuple[str, int], Array]) -> None:
        """Save the flags of a function's registers for lanes that enter it recursively."""

    def restore(self, rows: dict[str, list[int]], lanes: Array, kept: dict[tuple[str, int], Array]) -> None:
        """Restore them."""


class Definedness(Protocol):
    """Undefined-value tracking."""

    @property
    def flags(self) -> UndefinedFlags:
        """Flags of registers."""

    def passed(self, sources: Array, targets: Array, nbytes: int) -> None:
        """Values with undefined bytes were passed through local memory."""

    def emptied(self, firsts: Array, nbytes: int) -> None:
        """Ranges of local memory are new: nobody has written them."""


class FrameObserver(Protocol):
    """What frames need from the observer of a batch."""

    @property
    def definedness(self) -> Definedness:
        """Undefined-value tracking of registers."""


class FrameBatch(BatchHub, Protocol):
    """What frames need from their batch."""

    @property
    def checks(self) -> FrameObserver:
        """The observer."""


class Frames:
    """Local memory of one batch: `nbytes` for each lane, the kernel's frame first and those of calls after it."""

    def __init__(self, batch: FrameBatch, nbytes: int):
        self._batch = batch
        self.nbytes = nbytes
        self._stride = max(16, nbytes)
        size = batch.lanes * self._stride if nbytes else 16
        self._bytes: Array = np.full(size, POISON, np.uint8)
        # bytes beyond the frames, and between variables of a frame, are not memory
        self._state: Array = np.full(size, NOTHING, np.uint8)
        self._fresh: dict[str, Array] = {}
        if nbytes:
            kernel = self._fresh_frame(batch.program.entry)
            self._state.reshape(-1, self._stride)[:, : len(kernel)] = kernel
        # the base of each function's current frame, and the cells that hold addresses in it
        self._bases: dict[str, int] = {}
        self._cells: dict[str, list[tuple[Array, int]]] = {}
        # the stack for alloca, made on first use, and its top when a function was called, by depth of the call
        self._stack: Stack | None = None
        self._ends: dict[int, Array] = {}
        # saved registers of recursive functions, by function and depth of the call: frames may have no bytes, so that
        # their bases would not differ
        self._kept: dict[tuple[str, int], dict[str, Array]] = {}
        # and their undefined flags
        self._kept_flags: dict[tuple[str, int], dict[tuple[str, int], Array]] = {}

    def space(self) -> Space:
        """Local memory as a space for loads and stores."""
        origins = np.arange(self._batch.lanes, dtype=np.uint64) * np.uint64(self._stride)
        words, state = views(self._bytes), views(self._state)
        return Space("local", words, state, self.nbytes, origins, np.zeros(1, bool))

    def _fresh_frame(self, code: Code) -> Array:
        """The initial states of the bytes of a function's frame."""
        states = self._fresh.get(code.name)
        if states is None:
            states = self._fresh[code.name] = np.full(code.frame_bytes, NOTHING, np.uint8)
            for _, offset, nbytes in code.variables:
                states[offset : offset + nbytes] = UNWRITTEN
        return states

    def base_of(self, function: str) -> int:
        """The base of a function's current frame."""
        return self._bases.get(function, 0)

    @property
    def room(self) -> int:
        """Bytes of local memory available to frames."""
        return self.nbytes - (STACK_BYTES if self._batch.program.takes_stack else 0)

    @property
    def stack(self) -> Stack:
        """The stacks of all lanes."""
        if self._stack is None:
            state = self._state.reshape(-1, self._stride)
            emptied = self._batch.checks.definedness.emptied
            self._stack = Stack(self._batch.lanes, state, self._stride - STACK_BYTES, emptied)
        return self._stack

    def cell(self, function: str, offset: int) -> Array:
        """An address in a function's frame, updated at calls and returns."""
        cell: Array = np.array(self._bases.get(function, 0) + offset, np.uint64)
        self._cells.setdefault(function, []).append((cell, offset))
        return cell

    def set_base(self, function: str, base: int) -> None:
        """Set the base of the running function's frame."""
        if self._bases.get(function, 0) != base:
            self._bases[function] = base
            for cell, offset in self._cells.get(function, ()):
                cell[...] = base + offset

    def enter(self, fragment: Fragment, code: Code, caller: int, frame: Frame, arguments: tuple[Transfer, ...]) -> None:
        """Begin a frame, pass arguments, and save the registers of a recursive function."""
        values = [self._read(fragment, transfer, caller) for transfer in arguments]
        if code.recursive:
            self._keep(fragment, code, len(fragment.stack))
        if self._batch.program.takes_stack:
            lanes = _lanes(fragment)
            ends = self._ends.setdefault(len(fragment.stack), np.zeros(self._batch.lanes, np.int64))
            ends[lanes] = self.stack.tops(lanes)
        if self.nbytes:
            lanes = _lanes(fragment)
            self._state.reshape(-1, self._stride)[lanes, frame.base : frame.top] = self._fresh_frame(code)
            firsts = lanes.astype(np.int64) * self._stride + frame.base
            self._batch.checks.definedness.emptied(firsts, frame.top - frame.base)
        for transfer, value in zip(arguments, values, strict=True):
            self._write(fragment, transfer, frame.base, value)
            self._pass_on(fragment, transfer, caller, frame.base, value[1])

    def leave(self, fragment: Fragment, frame: Frame, caller: int) -> None:
        """Restore the registers of a recursive function, and pass results."""
        values = [self._read(fragment, transfer, frame.base) for transfer in frame.results]
        code, depth = self._batch.program.codes[frame.callee], len(fragment.stack) - 1
        if code.recursive:
            self._restore(fragment, code, depth)
        if self._batch.program.takes_stack:
            lanes = _lanes(fragment)
            self.stack.restore(lanes, self._ends[depth][lanes], None)
        if self.nbytes:
            self._state.reshape(-1, self._stride)[_lanes(fragment), frame.base : frame.top] = NOTHING
        for transfer, value in zip(frame.results, values, strict=True):
            self._write(fragment, transfer, caller, value)
            self._pass_on(fragment, transfer, frame.base, caller, value[1])

    def lanes_of(self, fragment: Fragment) -> Array:
        """Lane numbers of a fragment's active lanes."""
        return _lanes(fragment)

    def in_use(self, fragment: Fragment) -> list[tuple[int, int]]:
        """Ranges of local memory that a fragment's lanes may use: their frames, and the stack for alloca."""
        program = self._batch.program
        top = fragment.stack[-1].top if fragment.stack else program.entry.frame_bytes
        taken = STACK_BYTES if program.takes_stack else 0
        return [(0, min(top, self.nbytes)), (self.nbytes - taken, taken)]

    def bytes_at(self, lanes: Array, start: int, nbytes: int) -> Array:
        """A copy of some bytes of local memory, a row for each lane."""
        return np.ascontiguousarray(self._bytes.reshape(-1, self._stride)[lanes, start : start + nbytes])

    def give(self, lanes: Array, start: int, nbytes: int, results: list[int] | None) -> None:
        """Set the results of a function without a body: a number for each lane, or zeros."""
        part = slice(start, start + nbytes)
        numbers = [0] * len(lanes) if results is None else results
        data = b"".join((n & ((1 << 8 * nbytes) - 1)).to_bytes(nbytes, "little") for n in numbers)
        self._bytes.reshape(-1, self._stride)[lanes, part] = np.frombuffer(data, np.uint8).reshape(len(lanes), nbytes)
        self._state.reshape(-1, self._stride)[lanes, part] = WRITTEN

    def _read(self, fragment: Fragment, transfer: Transfer, base: int) -> tuple[Array, Array | None]:
        """A value as bytes for each lane and their states, or as a row."""
        if transfer.from_slot:
            row = np.broadcast_to(fragment.window.rows[transfer.source], fragment.window.size).copy()
            return row, None
        part = slice(base + transfer.source, base + transfer.source + transfer.nbytes)
        lanes = fragment.window.lane_numbers
        return self._bytes.reshape(-1, self._stride)[lanes, part], self._state.reshape(-1, self._stride)[lanes, part]

    def _write(self, fragment: Fragment, transfer: Transfer, base: int, value: tuple[Array, Array | None]) -> None:
        data, state = value
        if transfer.to_slot:
            dtype = fragment.window.blank(transfer.target).dtype
            row = data if data.ndim == 1 else _as_row(data, dtype)
            fragment.window.put(transfer.target, row.astype(dtype), fragment.lanes.mask)
            return
        if data.ndim == 1:
            data = data.view(np.uint8).reshape(len(data), -1)
        chosen = slice(None) if fragment.lanes.mask is None else fragment.lanes.mask
        lanes = _lanes(fragment)
        part = slice(base + transfer.target, base + transfer.target + data.shape[1])
        self._bytes.reshape(-1, self._stride)[lanes, part] = data[chosen]
        self._state.reshape(-1, self._stride)[lanes, part] = WRITTEN if state is None else state[chosen]

    def _pass_on(self, fragment: Fragment, transfer: Transfer, source: int, target: int, state: Array | None) -> None:
        """Where undefined bytes were passed, their origins go along."""
        if state is None or transfer.to_slot:
            return
        lost = ((state & WRITTEN) == UNWRITTEN).any(axis=1)
        lost = lost if fragment.lanes.mask is None else lost & fragment.lanes.mask
        if lost.any():
            first = fragment.window.lane_numbers[lost].astype(np.int64) * self._stride
            passed = first + source + transfer.source, first + target + transfer.target
            self._batch.checks.definedness.passed(*passed, transfer.nbytes)

    def _keep(self, fragment: Fragment, code: Code, depth: int) -> None:
        """Save a function's registers for a fragment's lanes, one set for each depth of the stack."""
        kept, lanes = self._kept.setdefault((code.name, depth), {}), _lanes(fragment)
        for bank, rows in code.rows.items():
            if bank not in kept:
                kept[bank] = np.zeros((len(rows), self._batch.lanes), bank)
            kept[bank][:, lanes] = self._batch.banks[bank][np.array(rows)[:, None], lanes]
        flags = self._kept_flags.setdefault((code.name, depth), {})
        self._batch.checks.definedness.flags.keep(code.rows, lanes, flags)

    def _restore(self, fragment: Fragment, code: Code, depth: int) -> None:
        kept, lanes = self._kept[code.name, depth], _lanes(fragment)
        for bank, rows in code.rows.items():
            self._batch.banks[bank][np.array(rows)[:, None], lanes] = kept[bank][:, lanes]
        self._batch.checks.definedness.flags.restore(code.rows, lanes, self._kept_flags[code.name, depth])


def _lanes(fragment: Fragment) -> Array:
    lanes: Array = fragment.window.lane_numbers
    return lanes if fragment.lanes.mask is None else lanes[fragment.lanes.mask]


def _as_row(data: Array, dtype: np.dtype[np.generic]) -> Array:
    """Convert bytes of each lane to one value each."""
    padded = np.zeros((len(data), dtype.itemsize), np.uint8)
    padded[:, : data.shape[1]] = data
    row: Array = padded.view(dtype).reshape(-1)
    return row
