"""What one call of a routine recorded, ready to be recorded again at other addresses (`routines`)."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import Array
from kernbench.common.pe_commands import OPERATIONS, SCRATCH, TensorHandle
from kernbench.result.recording import FIRST_VIEW, NONE
from kernbench.triton_emu.pe.port import Passed
from kernbench.triton_emu.pe.scratch import ALIGNMENT, Block, Noted, ScratchPool
from kernbench.triton_emu.repeating.affine import Span, Terms, Watched
from kernbench.triton_emu.repeating.folding import MOST_LOGGED, rows_of
from kernbench.triton_emu.repeating.recorder import Recorder
from kernbench.triton_emu.repeating.repeated_scratch import Events, Shelves, Taken
from kernbench.triton_emu.repeating.replay import NotAlikeError, UnlikeIterationError

if TYPE_CHECKING:
    from kernbench.triton_emu.repeating.loops import Access

__kernbench_internal__ = True

Ints = NDArray[np.int64]
# which of the given numbers an address moves with, and by how much
Moves = tuple[tuple[int, int], ...]
# from where to where accesses of a form are allowed, and the multiples of what from where
Allowed = tuple[int, int, int, int]
_new_handle = object.__new__
# numbers of 32 bits, as in rows of numbers
LEAST, LARGEST = -(1 << 31), (1 << 31) - 1
# by the code of an operation: whether it moves bytes of HBM
IS_TRANSFER = np.array([name in ("load", "store") for name in OPERATIONS])


class Start:
    """A program before a call: how far its recording was, and the free blocks of its scratch memory."""

    def __init__(self, context: Recorder):
        pool = context._scratch
        self.row, self.view = context.steps, context._views_made
        self.used, self.searches, self.collections = pool.used, pool.searches, pool._collections_left
        self.refused, self.ids_asked, self.adopted = len(context.refused), context.ids_asked, context.adopted
        self.free = {size: [block.addr for block in shelf] for size, shelf in pool._shelves.items() if shelf}
        self.sizes = {block.addr: block.nbytes for shelf in pool._shelves.values() for block in shelf}
        self.effects = 0
        self.did_more = True
        # messages without data that it sent and received
        self.messages: list[Passed] = []
        self.accesses: list[Access] = []
        # rows of numbers whose ends were given
        self.spans: list[Span] = []
        # what the allocator did (None: too much), and the sizes of blocks that it was asked for
        self.log: list[Noted] | None = None
        self.taken: set[int] = set()
        # the most that was in use before, and that the call adds
        self._peak, pool.peak = pool.peak, pool.used
        self.most = 0

    def note(self, context: Recorder) -> None:
        """After the call, while it is still watched: what it did besides recording."""
        pool = context._scratch
        self.did_more = (
            context._port.effects != self.effects + len(self.messages)
            or len(context.refused) != self.refused
            or context.adopted != self.adopted
        )
        self.accesses = list(context.watch.accesses)
        noted = len(pool.log) + context.watch.noted
        self.log = list(pool.log) if context.watch.logs_all and noted <= MOST_LOGGED else None
        # blocks that repeated iterations were given are of sizes that those before them asked for
        asked = {entry[3] for entry in pool.log if type(entry) is tuple}
        self.taken = {max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT) for nbytes in asked if nbytes >= 0}
        self.most = pool.peak - self.used

    def restore(self, context: Recorder) -> None:
        """What was changed in order to watch."""
        context._scratch.peak = max(context._scratch.peak, self._peak)


class Template:
    """The rows of a call, and how each of their columns moves; `marks` is what the call could depend on."""

    def __init__(self, context: Recorder, start: Start, watched: list[Watched], at: tuple[int, ...], result: object):
        self.marks: list[object] = []
        self._given, self._at = at, np.array(at, np.int64)
        self._row, self._view = start.row, start.view
        self._rows = context.stream.rows.tail(context.steps - start.row)
        self._views = context.stream.views.tail(context._views_made - start.view)
        self._results, self._kind = _handles(result, start)
        self._made = np.flatnonzero(self._rows["type"] >= 0)
        self._operands()
        self._hbm(context, start.accesses, watched)
        self._rows_of_numbers(start.spans, watched)
        self._taken = self._scratch(context._scratch, start)
        self._messages = start.messages
        moves = IS_TRANSFER[self._rows["op"]]
        # whether another program would do the same: it does not know who it is, and all its addresses are given
        self.is_private = context.ids_asked != start.ids_asked or int(moves.sum()) != len(self._loads)

    def _scratch(self, pool: ScratchPool, start: Start) -> Taken:
        made, views = self._rows["addr"][self._made], self._views["addr"]
        results = [model.begin for model in self._results]
        if pool.searches == start.searches:
            return Shelves(pool, start, made, views, results)
        numbers = start.row + self._made, start.view + np.arange(len(views))
        return Events(pool, start, numbers, made, views, results)

    def _operands(self) -> None:
        """Operands are values that the call made itself."""
        numbers = [self._rows[name] for name in "abc"] + [self._views["producer"]]
        for column in numbers:
            own = (column == NONE) | (column >= self._row) | (column <= FIRST_VIEW - self._view)
            if not own.all():
                raise NotAlikeError
        # which operands are values of commands, and which are views
        self._moving: dict[str, NDArray[np.int32]] = {}
        self._viewed: dict[str, Ints] = {}
        for name, column in zip("abc", numbers[:3], strict=True):
            if (column >= 0).any():
                self._moving[name] = (column >= 0).astype(np.int32)
            if len(viewed := np.flatnonzero(column <= FIRST_VIEW)):
                self._viewed[name] = viewed
        self._producers = (numbers[3] >= 0).astype(np.int32)

    def _hbm(self, context: Recorder, accesses: "list[Access]", watched: list[Watched]) -> None:
        """By how much the address of each load and store moves with each given one, and what must be in bounds."""
        number = {id(one): i for i, one in enumerate(watched)}
        self._factors = np.zeros((len(self._rows), len(watched)), np.int64)
        self._bounds: dict[tuple[Any, ...], tuple[int, int]] = {}
        known: dict[Terms, tuple[int, ...]] = {}
        for access in accesses:
            factors = known.get(access.terms)
            if factors is None:
                factors = known[access.terms] = _factors(access.terms, number)
            self._factors[rows_of(access) - self._row] = factors
            low = high = access.address
            for times, _, further in access.repeats:
                if further < 0:
                    low += (times - 1) * further
                else:
                    high += (times - 1) * further
            key = access.shape, access.strides, factors, context._port.element_type(access.address)
            was = self._bounds.get(key)
            if was is None or low < was[0] or high > was[1]:
                was = was or (low, high)
                self._bounds[key] = min(low, was[0]), max(high, was[1])
            if _allowed(context, key, low, high) is None:
                raise NotAlikeError
        self._loads = np.flatnonzero(self._factors.any(axis=1))
        self._factors = self._factors[self._loads]
        # nearly always an address moves with one of the numbers: which, and by how much
        self._which = np.abs(self._factors).argmax(axis=1) if len(self._loads) else self._loads
        self._step = self._factors.sum(axis=1)
        self._moves_singly = bool(((self._factors != 0).sum(axis=1) == 1).all())
        # those of one tensor after each other
        ranges = sorted(self._bounds.items(), key=lambda one: one[1])
        self._ranges = [(key, (key[0], key[3]), _moves(key[2]), low, high) for key, (low, high) in ranges]

    def _rows_of_numbers(self, spans: list[Span], watched: list[Watched]) -> None:
        """Which numbers stood in rows, by how they move with each given one: they must go on fitting their type."""
        number = {id(one): i for i, one in enumerate(watched)}
        self._spans: dict[tuple[int, ...], tuple[int, int]] = {}
        for terms, low, high in spans:
            factors = _factors(terms, number)
            least, largest = self._spans.get(factors, (low, high))
            self._spans[factors] = min(low, least), max(high, largest)
        self._numbers = [(_moves(factors), low, high) for factors, (low, high) in self._spans.items()]

    # Again

    @property
    def passes_messages(self) -> bool:
        """Whether the call sends or receives."""
        return bool(self._messages)

    def fits(self, context: Recorder, at: tuple[int, ...]) -> bool:
        """Whether a call with these addresses finds the memory it needs, stays in bounds and within the budget."""
        if not self._taken.fits(context._scratch) or context.steps + len(self._rows) > context._max_steps:
            return False
        moved = [now - was for now, was in zip(at, self._given, strict=True)]
        return self._stays_in_bounds(context, moved) and all(
            low + (further := _sum(moves, moved)) >= LEAST and high + further <= LARGEST
            for moves, low, high in self._numbers
        )

    def _stays_in_bounds(self, context: Recorder, moved: list[int]) -> bool:
        """Whether all accesses are allowed where they are then. Between the ends of a tensor in which one of a form was
        found to be allowed the others of that form are.
        """
        known: dict[object, Allowed] = {}
        for key, form, moves, low, high in self._ranges:
            # as `_sum` and `_is_inside` do it: a call of many chunks has hundreds of ranges
            further = moves[0][1] * moved[moves[0][0]] if len(moves) == 1 else _sum(moves, moved)
            allowed = known.get(form)
            if allowed is not None:
                first, last, base, itemsize = allowed
                if first <= low + further and high + further <= last and not (low + further - base) % itemsize:
                    continue
            allowed = _allowed(context, key, low + further, high + further)
            if allowed is None:
                return False
            # with gaps an address may lie in front of what it touches, and in another tensor
            if key[1] is None:
                known[form] = allowed
        return True

    def predicted(self, context: Recorder, at: tuple[int, ...]) -> "Predicted":
        """What a call would record now; without scratch addresses where only a call can give them."""
        return Predicted(*self._moved(context, at), self._made, self._taken.would(context._scratch))

    def _moved(self, context: Recorder, at: tuple[int, ...]) -> tuple[Array, Array]:
        """Rows and views of a call, but for their scratch addresses."""
        further, views_further = context.steps - self._row, context._views_made - self._view
        rows, views = self._rows.copy(), self._views.copy()
        for name, moving in self._moving.items():
            rows[name] += moving * np.int32(further)
        for name, viewed in self._viewed.items():
            rows[name][viewed] -= np.int32(views_further)
        away = np.array(at, np.int64) - self._at
        rows["x"][self._loads] += away[self._which] * self._step if self._moves_singly else self._factors @ away
        views["producer"] += self._producers * np.int32(further)
        return rows, views

    def repeat(self, context: Recorder, at: tuple[int, ...]) -> Any:
        """Record a call without running it; what it gives back."""
        if self._messages:
            # what others see of this program while it waits here is too little, if it never goes on
            context.passed_unseen = True
            if context._port.pass_again(self._messages):
                # whole numbers keep their values: what the function would have done with these only a run can show
                context.folded_wrongly = True
                raise UnlikeIterationError
        stream, first, first_view = context.stream, context.steps, context._views_made
        rows, views = self._moved(context, at)
        rows["addr"][self._made], views["addr"], blocks = self._taken.take(context)
        stream.rows.extend(rows)
        if len(views):
            stream.views.extend(views)
        context.steps += len(rows)
        context._views_made += len(views)
        context._checkpoint = min(context.steps + context._rows.room, context._max_steps + 1)
        pairs = zip(self._results, blocks, strict=True)
        results = [model.handle(block, first, first_view) for model, block in pairs]
        if self._kind is None:
            return None
        return results[0] if self._kind is TensorHandle else tuple.__new__(self._kind, results)


class Predicted:
    """Rows and views that a call is expected to record; the addresses of made values and views, if they are known."""

    def __init__(self, rows: Array, views: Array, made: Ints, addresses: tuple[Ints, Ints] | None):
        self.rows = rows
        self.views = views
        self._made = made
        self._is_placed = addresses is not None
        if addresses is not None:
            self._place(*addresses)

    def _place(self, made: Ints, views: Ints) -> None:
        """Give values and views their scratch addresses."""
        self.rows["addr"][self._made], self.views["addr"] = made, views

    def came_true(self, context: Recorder, start: tuple[int, int]) -> bool:
        """Whether the call that ran since then, when there were so many rows and views, recorded just that."""
        if (context.steps, context._views_made) != (start[0] + len(self.rows), start[1] + len(self.views)):
            return False
        rows, views = context.stream.rows.tail(len(self.rows)), context.stream.views.tail(len(self.views))
        if not self._is_placed:
            self._place(rows["addr"][self._made], views["addr"])
        return np.array_equal(rows, self.rows) and np.array_equal(views, self.views)


class _Model:
    """What is kept of a handle that was given back: not the handle, which would keep its block."""

    def __init__(self, handle: TensorHandle, start: Start):
        self.begin, self._offset = handle.block.addr, handle.addr - handle.block.addr
        self._same = [(name, getattr(handle, name)) for name in ("shape", "dtype", "type", "nbytes", "strides")]
        self._is_view = handle.number < 0
        self._number = FIRST_VIEW - start.view - handle.number if self._is_view else handle.number - start.row
        self._producer, self._used = handle.block.number - start.row, handle.block.used

    def handle(self, block: Block, row: int, view: int) -> TensorHandle:
        """A handle like it on a block, after a call that began with this row and view."""
        handle: TensorHandle = _new_handle(TensorHandle)
        for name, value in self._same:
            setattr(handle, name, value)
        handle.block, handle.addr, handle.space, handle.pinned = block, block.addr + self._offset, SCRATCH, False
        handle.data = block.data = None
        handle.number = handle.id = FIRST_VIEW - view - self._number if self._is_view else row + self._number
        block.number, block.used = row + self._producer, self._used
        return handle


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
    """Whether a handle is that of a value which the call made, or a view of one, and nobody else has it."""
    block, number = handle.block, handle.number
    own = number >= start.row or number <= FIRST_VIEW - start.view
    alone = block.users == 1 and block.number >= start.row and block.live_in is not None and not block.pinned
    return (
        own and alone and handle.id == number and handle.space == SCRATCH and not handle.pinned and handle.data is None
    )


def _factors(terms: Terms, number: dict[int, int]) -> tuple[int, ...]:
    """By how much an address with these terms moves with each of the loops that `number` counts."""
    factors = [0] * len(number)
    for loop, step in terms:
        if id(loop) in number:
            factors[number[id(loop)]] += step
    return tuple(factors)


def _moves(factors: tuple[int, ...]) -> Moves:
    """The given numbers that an address moves with, and by how much."""
    return tuple((i, step) for i, step in enumerate(factors) if step)


def _sum(moves: Moves, moved: list[int]) -> int:
    """By how much an address is moved, if the given numbers are by so much."""
    if len(moves) == 1:
        i, step = moves[0]
        return step * moved[i]
    return sum([step * moved[i] for i, step in moves])


def _allowed(context: Recorder, key: tuple[Any, ...], low: int, high: int) -> Allowed | None:
    """Where accesses of one form are allowed; None if those from `low` to `high` are not, or are to elements of another
    type than they had.
    """
    shape, strides, _, dtype = key
    allowed = context._port.unwatched(low, shape, strides) if low >= 0 else None
    if allowed is None or not _is_inside(allowed, low, high):
        return None
    return allowed if context._port.element_type(low) == dtype else None


def _is_inside(allowed: Allowed, low: int, high: int) -> bool:
    first, last, base, itemsize = allowed
    return first <= low and high <= last and not (low - base) % itemsize
