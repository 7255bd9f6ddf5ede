"""What one call of a routine recorded, ready to be recorded again at other addresses (`routines`)."""

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.common.pe_commands import SCRATCH, TensorHandle
from kernbench.result.recording import FIRST_VIEW, NONE
from kernbench.triton_emu.affine import Watched
from kernbench.triton_emu.folding import rows_of
from kernbench.triton_emu.replay import NotAlikeError
from kernbench.triton_emu.scratch import ALIGNMENT

__kernbench_internal__ = True

Ints = NDArray[np.int64]
_new_handle = object.__new__


class Start:
    """A program before a call: how far its recording was, and the free blocks of its scratch memory."""

    def __init__(self, context: Any):
        pool = context._scratch
        self.row, self.view = context.steps, context._views_made
        self.used, self.searches = pool.used, pool.searches
        self.refused = len(context.refused)
        self.free = {size: [block.addr for block in shelf] for size, shelf in pool._shelves.items() if shelf}
        self.sizes = {block.addr: block.nbytes for shelf in pool._shelves.values() for block in shelf}
        self.effects = 0
        self.did_more = True
        self.accesses: list[Any] = []
        self.taken: set[int] = set()
        # the most that was in use before, and that the call adds
        self._peak, pool.peak = pool.peak, pool.used
        self.most = 0

    def note(self, context: Any) -> None:
        """After the call, while it is still watched: what it did besides recording."""
        pool = context._scratch
        self.did_more = context._port.effects != self.effects or len(context.refused) != self.refused
        self.accesses = list(context.watch.accesses)
        self.taken = {max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT) for *_, nbytes in pool.log if nbytes >= 0}
        self.most = pool.peak - self.used

    def restore(self, context: Any) -> None:
        """What was changed in order to watch."""
        context._scratch.peak = max(context._scratch.peak, self._peak)


class Template:
    """The rows of a call, and how each of their columns moves; `marks` is what the call could depend on."""

    def __init__(self, context: Any, start: Start, watched: list[Watched], at: tuple[int, ...], result: Any):
        pool = context._scratch
        if pool.searches != start.searches:
            # space from gaps depends on what lies around
            raise NotAlikeError
        self.marks: list[Any] = []
        self._at = np.array(at, np.int64)
        self._row, self._view = start.row, start.view
        self._rows = context.stream.rows.tail(context.steps - start.row)
        self._views = context.stream.views.tail(context._views_made - start.view)
        self._most = start.most
        self._results, self._kind = _handles(result, start)
        self._scratch(pool, start)
        self._operands()
        self._hbm(context, start.accesses, watched)

    def _scratch(self, pool: Any, start: Start) -> None:
        """The shelves that were used, their blocks in order before and after, and the block behind each address."""
        sizes = sorted(start.taken)
        # (bytes, how many free blocks there were)
        self._shelves = [(size, len(start.free.get(size, ()))) for size in sizes]
        before = [address for size in sizes for address in start.free.get(size, ())]
        place = {address: i for i, address in enumerate(before)}
        try:
            self._after = [[place[block.addr] for block in pool._shelves.get(size, ())] for size in sizes]
            self._result_blocks = [place[handle.block.addr] for handle in self._results]
        except KeyError:
            raise NotAlikeError from None
        if sorted([i for shelf in self._after for i in shelf] + self._result_blocks) != list(range(len(before))):
            raise NotAlikeError
        self._made = np.flatnonzero(self._rows["type"] >= 0)
        addresses = np.array(before, np.int64)
        ends = addresses + np.array([start.sizes[address] for address in before], np.int64)
        self._row_place, offset = _inside(self._rows["addr"][self._made], addresses, ends)
        self._view_place, self._view_offset = _inside(self._views["addr"], addresses, ends)
        if offset.any():
            raise NotAlikeError

    def _operands(self) -> None:
        """Operands are values that the call made itself."""
        numbers = [self._rows[name] for name in "abc"] + [self._views["producer"]]
        for column in numbers:
            own = (column == NONE) | (column >= self._row) | (column <= FIRST_VIEW - self._view)
            if not own.all():
                raise NotAlikeError
        self._moving = {
            name: (column >= 0, column <= FIRST_VIEW) for name, column in zip("abc", numbers[:3], strict=True)
        }
        self._producers = numbers[3] >= 0

    def _hbm(self, context: Any, accesses: list[Any], watched: list[Watched]) -> None:
        """By how much the address of each load and store moves with each given one, and what must be in bounds."""
        number = {id(one): i for i, one in enumerate(watched)}
        self._factors = np.zeros((len(self._rows), len(watched)), np.int64)
        self._bounds: dict[tuple[Any, ...], tuple[int, int]] = {}
        for access in accesses:
            factors = [0] * len(watched)
            for loop, step in access.terms:
                if id(loop) in number:
                    factors[number[id(loop)]] += step
            self._factors[rows_of(access) - self._row] = factors
            reach = [(times - 1) * further for times, _, further in access.repeats]
            low = access.address + sum(r for r in reach if r < 0)
            high = access.address + sum(r for r in reach if r > 0)
            key = access.shape, access.strides, tuple(factors), context._port.element_type(access.address)
            was = self._bounds.get(key, (low, high))
            self._bounds[key] = min(low, was[0]), max(high, was[1])
            if not _is_allowed(context, key, low, high):
                raise NotAlikeError
        self._loads = np.flatnonzero(self._factors.any(axis=1))
        self._factors = self._factors[self._loads]

    # Again

    def fits(self, context: Any, at: tuple[int, ...]) -> bool:
        """Whether a call with these addresses finds the same shelves, stays in bounds and within the budget."""
        shelves = context._scratch._shelves
        if any(len(shelves.get(size, ())) != count for size, count in self._shelves):
            return False
        if context.steps + len(self._rows) > context._max_steps:
            return False
        moved = (np.array(at, np.int64) - self._at).tolist()
        for key, (low, high) in self._bounds.items():
            further = sum(step * move for step, move in zip(key[2], moved, strict=True))
            if not _is_allowed(context, key, low + further, high + further):
                return False
        return True

    def predicted(self, context: Any, at: tuple[int, ...]) -> "Predicted":
        """What a call would record now."""
        blocks = self._blocks(context._scratch)
        addresses = np.array([block.addr for block in blocks], np.int64)
        further, views_further = context.steps - self._row, context._views_made - self._view
        rows, views = self._rows.copy(), self._views.copy()
        for name, (made, viewed) in self._moving.items():
            rows[name] += (made * further - viewed * views_further).astype(np.int32)
        rows["x"][self._loads] += self._factors @ (np.array(at, np.int64) - self._at)
        views["producer"] += (self._producers * further).astype(np.int32)
        if len(addresses):
            rows["addr"][self._made] = addresses[self._row_place]
            views["addr"] = addresses[self._view_place] + self._view_offset
        return Predicted(rows, views, blocks)

    def _blocks(self, pool: Any) -> list[Any]:
        return [block for size, _ in self._shelves for block in pool._shelves.get(size, ())]

    def repeat(self, context: Any, at: tuple[int, ...]) -> Any:
        """Record a call without running it; what it gives back."""
        pool, stream, first = context._scratch, context.stream, context.steps
        predicted = self.predicted(context, at)
        stream.rows.extend(predicted.rows)
        if len(predicted.views):
            stream.views.extend(predicted.views)
        context.steps += len(predicted.rows)
        context._views_made += len(predicted.views)
        context._checkpoint = min(context.steps + context._rows.room, context._max_steps + 1)
        pool.peak = max(pool.peak, pool.used + self._most)
        for (size, _), order in zip(self._shelves, self._after, strict=True):
            if size in pool._shelves:
                shelf: deque[Any] = pool._shelves[size]
                shelf.clear()
                shelf.extend(predicted.blocks[i] for i in order)
        results = [self._result(pool, predicted.blocks, i, first) for i in range(len(self._results))]
        if self._kind is None:
            return None
        return results[0] if self._kind is TensorHandle else tuple.__new__(self._kind, results)

    def _result(self, pool: Any, blocks: list[Any], which: int, first: int) -> TensorHandle:
        """A handle like the one that the call gave back."""
        model, block = self._results[which], blocks[self._result_blocks[which]]
        handle: TensorHandle = _new_handle(TensorHandle)
        for name in ("shape", "dtype", "type", "nbytes"):
            setattr(handle, name, getattr(model, name))
        handle.block, handle.addr, handle.space, handle.pinned = block, block.addr, SCRATCH, False
        handle.data = handle.strides = block.data = None
        handle.number = handle.id = block.number = first + model.row
        block.users, block.used = 1, model.used
        pool.used += block.nbytes
        return handle


class Predicted:
    """Rows and views that a call is expected to record; `blocks` are the free blocks before it."""

    def __init__(self, rows: NDArray[Any], views: NDArray[Any], blocks: list[Any]):
        self.rows = rows
        self.views = views
        self.blocks = blocks

    def came_true(self, context: Any) -> bool:
        """Whether the call that ran since recorded just that."""
        rows, views = context.stream.rows.tail(len(self.rows)), context.stream.views.tail(len(self.views))
        return np.array_equal(rows, self.rows) and np.array_equal(views, self.views)


class _Model:
    """What is kept of a handle that was given back: not the handle, which would keep its block."""

    def __init__(self, handle: TensorHandle, start: Start):
        self.shape, self.dtype, self.type, self.nbytes = handle.shape, handle.dtype, handle.type, handle.nbytes
        self.row, self.used = handle.number - start.row, handle.block.used
        self.block = _At(handle.block.addr)


class _At:
    def __init__(self, addr: int):
        self.addr = addr


def _handles(result: Any, start: Start) -> tuple[list[Any], Any]:
    """The handles that a call gave back, and what they are in: None for none, or a tuple of some kind."""
    if result is None:
        return [], None
    if type(result) is TensorHandle:
        handles, kind = [result], TensorHandle
    elif issubclass(type(result), tuple) and not getattr(result, "__dict__", None):
        handles, kind = list(result), type(result)
    else:
        raise NotAlikeError
    for handle in handles:
        if type(handle) is not TensorHandle or not _is_plain(handle, start):
            raise NotAlikeError
    if len({id(handle.block) for handle in handles}) != len(handles):
        raise NotAlikeError
    return [_Model(handle, start) for handle in handles], kind


def _is_plain(handle: TensorHandle, start: Start) -> bool:
    """Whether a handle is that of a whole value which the call made, and nobody else has."""
    block = handle.block
    whole = handle.number >= start.row and handle.number == handle.id == block.number and handle.strides is None
    return whole and handle.addr == block.addr and block.users == 1 and not block.pinned and handle.data is None


def _inside(values: Ints, begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """For each address the block that it lies in, and how far."""
    if not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.argsort(begins)
    at = np.searchsorted(begins[order], values, side="right") - 1
    if not len(begins) or (at < 0).any():
        raise NotAlikeError
    place = order[at]
    if (values >= ends[place]).any():
        raise NotAlikeError
    return place, values - begins[place]


def _is_allowed(context: Any, key: tuple[Any, ...], low: int, high: int) -> bool:
    """Whether accesses of one form from `low` to `high` are allowed, and are to elements of the type they had."""
    shape, strides, _, dtype = key
    allowed = context._port.unwatched(low, shape, strides) if low >= 0 else None
    if allowed is None:
        return False
    first, last, base, itemsize = allowed
    inside = first <= low and high <= last and not (low - base) % itemsize
    return inside and context._port.element_type(low) == dtype
