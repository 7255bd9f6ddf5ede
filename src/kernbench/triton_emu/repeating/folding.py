"""Repeating the rows of an iteration, exactly as if it had run again and again.

Rows of later iterations differ in three ways. Operands: numbers of values made in the loop move on by the rows of an
iteration, others stay. Addresses in HBM: they move on by the step that the index gave them. Scratch addresses: as the
allocator gives them (`replay`).
"""

from bisect import bisect_left
from math import prod
from operator import attrgetter
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.common.pe_commands import NO_BLOCK, TensorHandle
from kernbench.result.recording import FIRST_VIEW, NONE
from kernbench.triton_emu.pe.scratch import Block, ScratchPool
from kernbench.triton_emu.repeating.affine import Watched
from kernbench.triton_emu.repeating.loop_state import State, UnknownStateError
from kernbench.triton_emu.repeating.recorder import Recorder, Traced
from kernbench.triton_emu.repeating.replay import (
    NotAlikeError,
    Replaying,
    Slot,
    Turning,
    UnlikeIterationError,
    as_rows,
)
from kernbench.triton_emu.repeating.values import MOST_TRACED, Values, is_whole, moved_on
from kernbench.triton_emu.stacking.transfers import Transfer

if TYPE_CHECKING:
    from kernbench.triton_emu.repeating.loops import Access

__kernbench_internal__ = True

Ints = NDArray[np.int64]
# what the allocator does is noted up to here for repeated iterations
MOST_LOGGED = 1 << 18
# numbers of rows that are made at a time
_BATCH = 1 << 18
# rows are picked one by one where there are so many times fewer of them
_FEW = 6
# commands that are computed at a time
_COMPUTED = 1 << 12
_row_of = attrgetter("row")


class Boundary:
    """A moment between two iterations: what the program holds, and where each block of its scratch memory lies.

    `slots` maps a slot for a block (on a shelf, behind the n-th handle, elsewhere) to its address.
    """

    def __init__(self, context: Recorder, frame: FrameType):
        stream, pool = context.stream, context._scratch
        state = State(frame, context.opaque)
        self.marks = state.marks
        self.row, self.view = context.steps, context._views_made
        self.indices = [(index.now, [term for term in index.terms if term[0].is_open]) for index in state.indices]
        self.state: State | None = state
        computes = context.trace is not None
        if computes and (state.sees_addresses or state.sees_values):
            raise UnknownStateError("code that looks at values")
        self.handles = [_taken(handle, stream.producer(handle.number), computes) for handle in state.handles]
        # how many values were noted so far
        self.traced = 0 if context.trace is None else len(context.trace)
        # what the allocator has done so far, and how many loops were folded: those did not log what they did
        self.used, self.searches, self.logged, self.folds = pool.used, pool.searches, len(pool.log), context.watch.folds
        self.slots: dict[Slot, int] = {}
        # bytes of the block at each address
        self.sizes = {addr: block.nbytes for addr, block in pool._blocks.items()}
        self.blocks: list[tuple[int, int, int, int, int]] = []
        self._place(pool, state.handles)

    def _place(self, pool: ScratchPool, handles: list[TensorHandle]) -> None:
        held: dict[int, list[int]] = {}
        for number, handle in enumerate(handles):
            if handle.block is not NO_BLOCK:
                held.setdefault(handle.block.addr, []).append(number)
        for size, shelf in pool._shelves.items():
            for position, block in enumerate(shelf):
                self.slots["free", size, position] = block.addr
        for addr, block in pool._blocks.items():
            if not block.users:
                continue
            users = held.get(addr, [])
            self.slots[("held", users[0]) if users else ("other", addr, block.number, block.users)] = addr
            if users:
                self.blocks.append((users[0], block.number, block.nbytes, block.users, len(users)))

    def bare(self) -> "Boundary":
        """Without the objects themselves, which must not live longer than they would."""
        self.state = None
        return self


def _taken(handle: TensorHandle, producer: int, computes: bool) -> tuple[tuple[object, ...], int, int, Any]:
    """What must be the same of a handle, and last what may be shifted: its number, that of its producer, its id."""
    offset = handle.addr if handle.block is NO_BLOCK else handle.addr - handle.block.addr
    # values themselves differ where they are computed, but how they lie in memory decides how NumPy goes through them
    data: object = getattr(handle.data, "strides", None) if computes else id(handle.data)
    constant = (handle.type, handle.strides, handle.nbytes, handle.pinned, offset, data)
    return constant, handle.number, producer, handle.id


class Fold:
    """The iteration between two boundaries that are alike, ready to be repeated."""

    def __init__(self, context: Recorder, loop: Watched, before: Boundary, after: Boundary):
        self._context = context
        self._loop = loop
        self._row, self._rows = before.row, after.row - before.row
        self._view, self._views = before.view, after.view - before.view
        if before.marks != after.marks or before.used != after.used:
            raise NotAlikeError
        self._shifts: dict[int, int] = {NONE: 0}
        self._check_indices(before, after)
        self._handle_shifts = self._check_handles(before, after)
        self._numbers = [number for _, number, _, _ in after.handles]
        self._block_shifts = self._check_blocks(before, after)
        self._scratch = self._scratch_of(before, after)
        stream = context.stream
        self._body = stream.rows.tail(self._rows)
        self._view_body = stream.views.tail(self._views)
        # in the order of their rows: a routine may have many loops, and none looks at the accesses before it
        accesses = context.watch.accesses
        self._accesses = accesses[bisect_left(accesses, self._row, key=_row_of) :]
        self._log = as_rows(context._scratch.log[before.logged : after.logged] if context.watch.logs_all else [])
        self._plan()
        self._done = 0
        self._noted: list[Traced] = []
        self._values = None if context.trace is None else self._computed(context.trace, before, after)

    # Are the two alike?

    def _check_indices(self, before: Boundary, after: Boundary) -> None:
        for (was, terms), (now, others) in zip(before.indices, after.indices, strict=True):
            step = sum(step for loop, step in terms if loop is self._loop)
            if terms != others or now - was != step:
                raise NotAlikeError

    def _check_handles(self, before: Boundary, after: Boundary) -> list[int]:
        """By how much the number of each handle moves in an iteration."""
        moved = []
        for was, now in zip(before.handles, after.handles, strict=True):
            same, number, producer, identity = was
            still, later, later_producer, later_identity = now
            shift = self._shift(number, later)
            if same != still or later_identity - identity not in (shift, 0):
                raise NotAlikeError
            self._shift(producer, later_producer)
            moved.append(shift)
        return moved

    def _shift(self, number: int, later: int) -> int:
        """How a number from before the iteration moves: not at all, or like what the iteration makes."""
        shift = later - number
        allowed = self._rows if number >= 0 else -self._views
        if shift not in (0, allowed) or self._shifts.setdefault(number, shift) != shift:
            raise NotAlikeError
        return shift

    def _check_blocks(self, before: Boundary, after: Boundary) -> dict[int, int]:
        """By how much the number of each held block moves; a block with handles nobody can see must stay as it is."""
        found = {}
        for was, now in zip(sorted(before.blocks), sorted(after.blocks), strict=True):
            shift = now[1] - was[1]
            hidden = now[3] != now[4]
            if was[0] != now[0] or was[2:] != now[2:] or shift not in (0, self._rows) or (hidden and shift):
                raise NotAlikeError
            found[now[0]] = shift
        return found

    def _scratch_of(self, before: Boundary, after: Boundary) -> Turning | Replaying:
        """How further iterations use scratch memory."""
        if before.searches == after.searches:
            return Turning(before.slots, after.slots, before.sizes)
        if self._context.folds_values:
            # memory that has to be searched for may end, which is for the kernel's line to report
            raise NotAlikeError
        # the log lacks what loops inside did that were folded, unless they note it
        if before.folds != after.folds and not self._context.watch.logs_all:
            raise NotAlikeError
        pool = self._context._scratch
        return Replaying(pool, as_rows(pool.log[before.logged : after.logged]), before.slots, after.slots)

    # What an iteration changes

    def _plan(self) -> None:
        body, views = self._body, self._view_body
        operands = np.concatenate([body["a"], body["b"], body["c"], views["producer"]])
        steps = np.split(self._operand_steps(operands), [self._rows, 2 * self._rows, 3 * self._rows])
        self._steps = dict(zip("abc", steps[:3], strict=True))
        self._steps["x"] = np.zeros(self._rows, np.int64)
        # by how much the address of each access moves
        self._strides = [sum(step for loop, step in a.terms if loop is self._loop) for a in self._accesses]
        for access, step in zip(self._accesses, self._strides, strict=True):
            self._steps["x"][rows_of(access) - self._row] = step
        self._producer_steps = steps[3]
        self._moving = [self._moves_of(name) for name, moves in self._steps.items() if moves.any()]
        self._made = np.flatnonzero(body["type"] >= 0)
        self._made_column, offset = self._scratch.sources(self._row + self._made, False, body["addr"][self._made])
        if offset.any():
            raise NotAlikeError
        numbers = self._view + np.arange(self._views)
        self._view_column, self._view_offset = self._scratch.sources(numbers, True, views["addr"])

    def _moves_of(self, name: str) -> tuple[str, Ints | slice, Ints]:
        """A column, those of its rows whose value moves (all, where they are not few), and by how much."""
        steps = self._steps[name]
        moving = np.flatnonzero(steps)
        if _FEW * len(moving) > self._rows:
            return name, slice(None), steps
        return name, moving, steps[moving]

    def _operand_steps(self, numbers: Ints) -> Ints:
        """By how much each number in a column moves."""
        steps: Ints = np.where(numbers >= 0, self._rows, -self._views)
        steps[numbers == NONE] = 0
        outside = np.flatnonzero((numbers < self._row) & (numbers > FIRST_VIEW - self._view) & (numbers != NONE))
        try:
            steps[outside] = [self._shifts[number] for number in numbers[outside].tolist()]
        except KeyError:
            raise NotAlikeError from None
        return steps

    def _computed(self, trace: list[Traced], before: Boundary, after: Boundary) -> Values:
        """What an iteration computes, at the addresses of the next one."""
        state, noted = after.state, trace[before.traced : after.traced]
        assert state is not None
        rows, views = range(before.row, after.row), range(before.view, after.view)
        if len(noted) > MOST_TRACED or not is_whole(noted, rows, views):
            raise NotAlikeError
        known = {handle.number: handle.data for handle in state.handles}
        wanted = [h.number for h, shift in zip(state.handles, self._handle_shifts, strict=True) if shift]
        for first, number, *_ in after.blocks:
            known.setdefault(number, state.handles[first].block.data)
            if shift := self._block_shifts[first]:
                wanted.append(number)
                self._shifts.setdefault(number - shift, shift)
        addresses, steps = self._body["x"].tolist(), self._steps["x"].tolist()
        for number, function, _ in noted:
            transfer: object = function
            if isinstance(transfer, Transfer):
                transfer.begin(addresses[number - self._row], steps[number - self._row])
        self._noted = noted
        return Values(noted, self._shifts, known, wanted, self._context._max_steps // self._rows, self._largest())

    def _largest(self) -> int:
        """Bytes of the largest value that an iteration makes."""
        types = self._context.stream.tables.types
        made = [types[number] for number in set(self._body["type"].tolist()) if number >= 0]
        return max([prod(shape) * ITEMSIZE[dtype] for shape, dtype, _ in made], default=1)

    def _note_values(self, times: int) -> None:
        """For loops around this one: how the values of the repeated iterations came about."""
        trace, shifts, rows, views = self._context.trace, self._shifts, self._rows, self._views
        if trace is None or len(self._context.watch.loops) < 2:
            return
        if len(trace) + times * len(self._noted) > 2 * MOST_TRACED:
            return
        # of each number that occurs, by how much it moves
        moves = {NONE: 0}
        for number, _, given in self._noted:
            for one in (number, *[operand for operand, _ in given]):
                own = one >= self._row or one <= FIRST_VIEW - self._view
                moves[one] = (rows if one >= 0 else -views) if own and one != NONE else shifts[one]
        for turn in range(1, times + 1):
            for number, function, given in self._noted:
                moved = [(operand + turn * moves[operand], value) for operand, value in given]
                trace.append((number + turn * moves[number], moved_on(function), moved))

    @property
    def is_settled(self) -> bool:
        """Whether space comes from shelves only, so that repeating costs next to nothing."""
        return isinstance(self._scratch, Turning)

    def times(self, wanted: int) -> int:
        """How many repetitions are within bounds and within the budget, up to `wanted`."""
        context = self._context
        times: int = min(wanted, (context._max_steps - context.steps) // self._rows)
        if self._values is not None:
            # each access is checked as it is made
            return times
        for access, step in zip(self._accesses, self._strides, strict=True):
            times = min(times, self._in_bounds(access, step, times))
        return times

    def _in_bounds(self, access: "Access", step: int, most: int) -> int:
        """Repetitions after which an access, with all repetitions it had so far, is still allowed."""
        allowed = self._context._port.unwatched(access.address, access.shape, access.strides)
        if allowed is None:
            return 0
        first, last, _, itemsize = allowed
        reach = [(times - 1) * further for times, _, further in access.repeats]
        low = access.address + sum(r for r in reach if r < 0) - first
        high = last - access.address - sum(r for r in reach if r > 0)
        if step % itemsize:
            return 0
        if not step:
            return most
        room: int = high // step if step > 0 else low // -step
        return max(0, min(most, room))

    # Repeating

    def repeat(self, now: Boundary, times: int) -> None:
        """Record that many further iterations, and leave the program as it would be after them."""
        context, state = self._context, now.state
        assert state is not None
        held = {first: state.handles[first].block for first, *_ in now.blocks}
        self._scratch.begin(held)
        self._done, effects = times, context._port.effects
        each = max(1, (_BATCH if self._values is None else _COMPUTED) // max(1, self._rows))
        if self._values is not None:
            each = max(each, self._values.together)
        for first in range(0, times, each):
            count = min(each, times - first)
            if self._values is not None:
                self._values.next(count)
            self._extend(first + 1, self._scratch.next(count))
            # who watches over the launch sees that it goes on
            context.steps += count * self._rows
            context._views_made += count * self._views
            if self._values is not None and context._port.is_late():
                last = context.stream.site(context.steps - 1)
                context._port.over_budget(context.steps, context.stream.tables.sites[last])
        if context._port.effects != effects:
            # a value that does not fit any more is a finding at the line that makes it
            context.folded_wrongly = True
            raise UnlikeIterationError
        self._note_values(times)
        context._checkpoint = min(context.steps + context._rows.room, context._max_steps + 1)
        context.watch.folds += 1
        self._move(state, held, {first: (number, users) for first, number, _, users, _ in now.blocks}, times)
        for access, step in zip(self._accesses, self._strides, strict=True):
            access.repeats = (*access.repeats, (times + 1, self._rows, step))

    def _extend(self, first: int, addresses: Ints) -> None:
        """Rows and views of iterations `first` and on; a row of addresses for each."""
        stream = self._context.stream
        watch = self._context.watch
        if len(self._log) and watch.noted > MOST_LOGGED:
            watch.logs_all, self._log = False, self._log[:0]
        if len(self._log):
            self._note(first, self._scratch.events(self._log, addresses))
        stream.rows.extend(self._rows_for(first, addresses).reshape(-1))
        if self._views:
            stream.views.extend(self._views_for(first, addresses).reshape(-1))

    def _note(self, first: int, addresses: Ints) -> None:
        """What the allocator did for iterations `first` and on, as if asked; a row of addresses for each."""
        noted = np.repeat(self._log[None], len(addresses), axis=0)
        number = np.arange(first, first + len(addresses))[:, None]
        noted[:, :, 0] += number * self._rows
        noted[:, :, 1] += number * self._views
        noted[:, :, 2] = addresses
        self._context._scratch.log.append(noted.reshape(-1, 4))
        self._context.watch.noted += noted.size // 4

    def _moved(self, first: int, count: int) -> Array:
        """Rows of iterations `first` and on, with the scratch addresses of the body."""
        number = np.arange(first, first + count)[:, None]
        rows = np.repeat(self._body[None, :], count, axis=0)
        for name, moving, steps in self._moving:
            column = rows[name]
            column[:, moving] += (number * steps).astype(column.dtype)
        return rows

    def _rows_for(self, first: int, addresses: Ints) -> Array:
        rows = self._moved(first, len(addresses))
        inside = self._made_column >= 0
        at = rows["addr"]
        at[:, self._made[inside]] = addresses[:, self._made_column[inside]]
        return rows

    def _moved_views(self, first: int, count: int) -> Array:
        number = np.arange(first, first + count)[:, None]
        views = np.repeat(self._view_body[None, :], count, axis=0)
        producer = views["producer"]
        producer += (number * self._producer_steps).astype(producer.dtype)
        return views

    def _views_for(self, first: int, addresses: Ints) -> Array:
        views = self._moved_views(first, len(addresses))
        inside = np.flatnonzero(self._view_column >= 0)
        at = views["addr"]
        at[:, inside] = addresses[:, self._view_column[inside]] + self._view_offset[inside]
        return views

    def _move(self, state: State, held: dict[int, Block], was: dict[int, tuple[int, int]], times: int) -> None:
        """Give handles, blocks and indices the numbers and addresses they would have."""
        offsets = [0 if handle.block is NO_BLOCK else handle.addr - handle.block.addr for handle in state.handles]
        owners = {id(block): number for number, block in held.items()}
        now = self._scratch.settle(self._context._scratch)
        for number, block in now.items():
            block.number = was[number][0] + times * self._block_shifts[number]
            block.users = was[number][1]
        for handle, offset, shift in zip(state.handles, offsets, self._handle_shifts, strict=True):
            if handle.block is not NO_BLOCK:
                handle.block = now[owners[id(handle.block)]]
                handle.addr = handle.block.addr + offset
            if handle.id == handle.number:
                handle.id += times * shift
            handle.number += times * shift
        if self._values is not None:
            self._set_values(self._values, state, now, was)
        for index in state.indices:
            index.now += times * index.step_of(self._loop)

    def _set_values(
        self, values: Values, state: State, blocks: dict[int, Block], was: dict[int, tuple[int, int]]
    ) -> None:
        """Give handles and blocks the values of the last iteration."""
        for first, block in blocks.items():
            if self._block_shifts[first]:
                block.data = values.value(was[first][0])
        for handle, number, shift in zip(state.handles, self._numbers, self._handle_shifts, strict=True):
            if shift:
                handle.data = values.value(number)

    def predicts_last(self) -> bool:
        """Whether the last rows are those of one more repetition."""
        context, number = self._context, self._done + 1
        if context.steps != self._row + (number + 1) * self._rows:
            return False
        if context._views_made != self._view + (number + 1) * self._views:
            return False
        # where the last iteration put its values is the allocator's own doing
        stream = context.stream
        rows, views = stream.rows.tail(self._rows), stream.views.tail(self._views)
        return _agree(self._moved(number, 1)[0], rows) and _agree(self._moved_views(number, 1)[0], views)


def _agree(predicted: Array, found: Array) -> bool:
    """Whether rows are the same but for their addresses; `predicted` gets those of `found`."""
    predicted["addr"] = found["addr"]
    return predicted.tobytes() == found.tobytes()


def rows_of(access: "Access") -> Ints | int:
    """All rows of an access and of its repetitions; a number where there is one."""
    if not access.repeats:
        return access.row
    rows = np.array([access.row], np.int64)
    for times, further, _ in access.repeats:
        rows = (rows[None, :] + further * np.arange(times)[:, None]).reshape(-1)
    return rows
