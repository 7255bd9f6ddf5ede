"""The values of repeated iterations: what an iteration computed is computed again and again, without the kernel.

While a loop of a run with data is watched, each value is noted with what computed it (`Core.trace`). Once two
boundaries are alike (`folding`), the notes of the iteration between them are all there is to compute: values do not
change once they are made, so an iteration is a list of calls on numbered slots. Operands from before the loop keep
their slots, those from the iteration before move to theirs when the next one begins. Loads and stores go to the same
memory in the same order as if the kernel had run, with all checks, and are reported at the same lines.

What is the same in every iteration is looked at once: loads that do not move, of memory that nobody stores to, and
views of such values and of those from before the loop.
"""

from collections.abc import Iterable
from math import prod
from typing import Self

from kernbench.common.dtypes import Array
from kernbench.result.recording import FIRST_VIEW, NONE
from kernbench.safety.memory import WINDOW_BITS
from kernbench.triton_emu.repeating.recorder import Compute, Recorder, Traced, Value
from kernbench.triton_emu.repeating.replay import NotAlikeError

__kernbench_internal__ = True

Shape = tuple[int, ...]
# of a load or store: shape, strides, element type, source location
Form = tuple[Shape, Shape | None, str | None, object]
Step = tuple[Compute, int, int, int, int]
# values of an iteration that are noted; a longer one is run
MOST_TRACED = 1 << 17


class Transfer:
    """A load or store at an address that moves on by the same number of bytes with each call."""

    def __init__(self, context: Recorder, form: Form):
        self._context = context
        self._form = form
        self._address = self._step = 0

    def begin(self, address: int, step: int) -> None:
        """Where it was in the iteration that was seen, and by how much it moves."""
        self._address, self._step = address, step

    def again(self) -> Self:
        """The same somewhere else."""
        return type(self)(self._context, self._form)


class Load(Transfer):
    """Gives the elements there."""

    def begin(self, address: int, step: int) -> None:
        """Memory that is lent is asked for once."""
        self._address, self._step = address, step
        self._shape, strides, dtype, _ = self._form
        self._count = prod(self._shape)
        self._region = None if strides is not None else self._context._port.lent_at(address, self._shape, dtype)

    @property
    def window(self) -> int:
        """The window of memory that it looks at."""
        return self._address >> WINDOW_BITS

    @property
    def stays(self) -> bool:
        """Whether each call gives the same elements of lent memory, as long as nobody stores to that."""
        return not self._step and self._region is not None and self._region.written is None

    def __call__(self) -> Array | None:
        """Of the next iteration."""
        self._address = address = self._address + self._step
        region = self._region
        if region is not None and region.written is None:
            array = region.array
            first, rest = divmod(address - region.base, array.itemsize)
            if not rest and 0 <= first <= array.size - self._count:
                lent: Array = array[first : first + self._count].reshape(self._shape)
                return lent
        found: tuple[Array | None, str] = self._context._port.load(address, *self._form)
        return found[0]


class Store(Transfer):
    """Puts elements there."""

    def windows(self, times: int) -> range:
        """The windows of memory from here to where so many further calls get."""
        ends = self._address >> WINDOW_BITS, (self._address + times * self._step) >> WINDOW_BITS
        return range(min(ends), max(ends) + 1)

    def __call__(self, data: Array) -> None:
        """Of the next iteration."""
        self._address += self._step
        self._context._port.store(self._address, data, *self._form)


class Values:
    """What an iteration computes, on slots.

    `shifts`: by how much the number of a value from before the iteration moves with each. `known`: the values at hand
    after it, by number. `wanted`: numbers of values that are asked for after the last one. `most`: no more iterations
    than that will be computed.
    """

    def __init__(
        self, trace: list[Traced], shifts: dict[int, int], known: dict[int, Value], wanted: Iterable[int], most: int
    ):
        self._shifts, self._known = shifts, known
        self._slots: list[Value] = []
        self._slot_of: dict[int, int] = {}
        self._free: list[int] = []
        made = {number for number, _, _ in trace}
        outside = {n for _, _, given in trace for n, _ in given if n != NONE and n not in made}
        kept = self._carried(outside | {n for n in wanted if n not in made}, made)
        self._kept = kept | set(wanted)
        # calls whose values stay
        self._first: list[Step] = []
        self._steps = self._assigned(trace, self._staying(trace, most))
        self._moves = [
            (self._slot_of[number], self._slot_of[number + shift])
            for number, shift in shifts.items()
            if shift and number in self._slot_of and number not in made
        ]
        self._begun = False

    def _staying(self, trace: list[Traced], most: int) -> set[int]:
        """Numbers of values that are the same in each iteration, and that take no memory of their own."""
        same = {number for number, shift in self._shifts.items() if not shift}
        found: set[int] = set()
        stored = [compute.windows(most) for _, compute, _ in trace if isinstance(compute, Store)]
        for number, compute, given in trace:
            if isinstance(compute, Load):
                stays = compute.stays and not any(compute.window in windows for windows in stored)
            elif number <= FIRST_VIEW or not given:
                stays = all(operand in same for operand, _ in given)
            else:
                stays = False
            if stays:
                same.add(number)
                found.add(number)
        return found

    def _carried(self, outside: set[int], made: set[int]) -> set[int]:
        """Give slots to values from before the iteration; the numbers that they come from when the next one begins."""
        sources: set[int] = set()
        pending = list(outside)
        while pending:
            number = pending.pop()
            if number in self._slot_of:
                continue
            if number not in self._shifts:
                raise NotAlikeError
            source = number + self._shifts[number]
            if source not in self._known:
                raise NotAlikeError
            # at the beginning of the iteration that follows the one that was seen
            self._slot_of[number] = self._taken(self._known[source])
            if source != number:
                sources.add(source)
                if source not in made:
                    pending.append(source)
        return sources

    def _taken(self, value: object = None) -> int:
        self._slots.append(value)
        return len(self._slots) - 1

    def _assigned(self, trace: list[Traced], staying: set[int]) -> list[Step]:
        """The calls: function, slot of the result, slots of up to three operands (-1 for none).

        A slot is used again once its value has been read for the last time, so that memory is given back as early as
        the kernel would. Calls whose values stay are kept apart, with slots of their own.
        """
        slot_of, free, taken = self._slot_of, self._free, self._taken
        # slots that nobody else gets: what is asked for later, stays, or comes from before
        kept = self._kept | staying | set(slot_of) | {NONE}
        last = {n: i for i, (_, _, given) in enumerate(trace) for n, _ in given}
        constants: dict[int, int] = {}
        steps: list[Step] = []
        for i, (number, compute, given) in enumerate(trace):
            slots = [-1, -1, -1]
            for position, (operand, value) in enumerate(given):
                if operand != NONE:
                    slots[position] = slot_of[operand]
                    continue
                slot = constants.get(id(value))
                if slot is None:
                    slot = constants[id(value)] = taken(value)
                slots[position] = slot
            a, b, c = slots
            if number in staying:
                result = slot_of[number] = taken()
                self._first.append((compute, result, a, b, c))
                continue
            for operand, _ in given:
                if last[operand] == i and operand not in kept:
                    # once, where an operand is given twice
                    last[operand] = -1
                    free.append(slot_of[operand])
            result = slot_of[number] = free.pop() if free else taken()
            if number not in last and number not in kept:
                free.append(result)
            steps.append((compute, result, a, b, c))
        return steps

    def next(self, times: int) -> None:
        """Compute so many further iterations."""
        slots = self._slots
        if not self._begun:
            self._compute(self._first)
        for _ in range(times):
            if self._begun:
                moved = [slots[source] for _, source in self._moves]
                for (target, _), value in zip(self._moves, moved, strict=True):
                    slots[target] = value
            self._begun = True
            self._compute(self._steps)

    def _compute(self, steps: list[Step]) -> None:
        slots = self._slots
        for function, result, a, b, c in steps:
            if b < 0:
                slots[result] = function() if a < 0 else function(slots[a])
            elif c < 0:
                slots[result] = function(slots[a], slots[b])
            else:
                slots[result] = function(slots[a], slots[b], slots[c])

    def value(self, number: int) -> Value:
        """After the last iteration: the value that had this number after the iteration that was seen."""
        return self._slots[self._slot_of[number]]


def moved_on(compute: Compute) -> Compute:
    """What computes the same in another iteration: loads and stores have an address of their own."""
    transfer: object = compute
    again: Compute = transfer.again() if isinstance(transfer, (Load, Store)) else compute
    return again


def is_whole(trace: list[Traced], rows: range, views: range) -> bool:
    """Whether it was noted for each command of an iteration, and for each view, how it came about."""
    numbers = [number for number, _, _ in trace]
    found = [n for n in numbers if n >= 0], [FIRST_VIEW - n for n in numbers if n < 0]
    return found == (list(rows), list(views))
