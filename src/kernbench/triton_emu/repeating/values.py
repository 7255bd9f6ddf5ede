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

from kernbench.result.recording import FIRST_VIEW, NONE
from kernbench.triton_emu.repeating.recorder import Traced
from kernbench.triton_emu.repeating.replay import NotAlikeError
from kernbench.triton_emu.stacking.forms import Compute, Value
from kernbench.triton_emu.stacking.stack import MOST_TOGETHER, TOGETHER, Stack, Step, last_of, run
from kernbench.triton_emu.stacking.transfers import Load, Store

__kernbench_internal__ = True

# values of an iteration that are noted; a longer one is run
MOST_TRACED = 1 << 17


class Values:
    """What an iteration computes, on slots.

    `shifts`: by how much the number of a value from before the iteration moves with each. `known`: the values at hand
    after it, by number. `wanted`: numbers of values that are asked for after the last one. `most`: no more iterations
    than that will be computed. `largest`: bytes of the largest value that an iteration makes.
    """

    def __init__(
        self,
        trace: list[Traced],
        shifts: dict[int, int],
        known: dict[int, Value],
        wanted: Iterable[int],
        most: int,
        largest: int,
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
        stored = [compute.windows(most) for _, compute, _ in trace if isinstance(compute, Store)]
        self._steps = self._assigned(trace, self._staying(trace, stored))
        self._moves = [
            (self._slot_of[number], self._slot_of[number + shift])
            for number, shift in shifts.items()
            if shift and number in self._slot_of and number not in made
        ]
        self._begun = False
        self._stack = self._stacked(stored, min(MOST_TOGETHER, TOGETHER // max(1, largest)))
        # whether the values of several iterations lie in the slots
        self._is_stacked = False

    def _stacked(self, stored: list[range], most: int) -> Stack | None:
        """The iterations several at once, where that pays, and none needs what another one computed or stored."""
        loads = [function for function, *_ in self._steps if isinstance(function, Load)]
        alone = all(load.is_lent and not any(load.window in windows for windows in stored) for load in loads)
        return Stack(self._steps, most) if most > 1 and alone and not self._moves else None

    @property
    def together(self) -> int:
        """How many iterations are computed at once, at most."""
        return 1 if self._stack is None else self._stack.most

    def _staying(self, trace: list[Traced], stored: list[range]) -> set[int]:
        """Numbers of values that are the same in each iteration, and that take no memory of their own."""
        same = {number for number, shift in self._shifts.items() if not shift}
        found: set[int] = set()
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
        if not self._begun:
            run(self._first, self._slots)
        while times:
            # as many parts as it takes, of about the same size
            count = -(-times // -(-times // self.together))
            if count == 1 or self._stack is None or not self._stack.compute(self._slots, count):
                count = 1
                self._one()
            self._is_stacked = count > 1
            self._begun = True
            times -= count

    def _one(self) -> None:
        slots = self._slots
        if self._begun:
            moved = [slots[source] for _, source in self._moves]
            for (target, _), value in zip(self._moves, moved, strict=True):
                slots[target] = value
        run(self._steps, slots)

    def value(self, number: int) -> Value:
        """After the last iteration: the value that had this number after the iteration that was seen."""
        slot = self._slot_of[number]
        is_several = self._is_stacked and self._stack is not None and slot in self._stack.stacked
        return last_of(self._slots[slot]) if is_several else self._slots[slot]


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
