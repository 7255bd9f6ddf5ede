"""Iterations that need nothing of each other, several of them computed at once.

On tiles of some KiB a third of a NumPy call is not spent on elements. Where no value goes from one iteration to the
next, those of several lie in one array, along a new first axis, and one call computes them all. Every element comes
about from the same operands in the same order: elementwise functions have no order, products are made matrix by matrix,
and what works along an axis goes along the same one, as the new axis is the outermost in memory. Loads are of memory
that nobody stores to meanwhile, and stores are made after the computing, one iteration after another.

What is new to a process is looked at once: the first iterations of each list of calls are also computed one by one, and
have to be the same bits, that lie in the same way. Where they are not, that list is computed one by one for ever.
"""

from collections.abc import Hashable
from functools import partial
from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.triton_emu.stacking.forms import Compute, Value, for_several, name_of
from kernbench.triton_emu.stacking.transfers import Load, Store

__kernbench_internal__ = True

# function, slot of its result, slots of up to three operands (-1 for none)
Step = tuple[Compute, int, int, int, int]
# bytes of the values of a kind that are computed at once, which are to stay in a core's own cache, and iterations
TOGETHER, MOST_TOGETHER = 1 << 17, 64
# lists of calls that are remembered
MOST_PLANS = 256


class Plan(NamedTuple):
    """How a list of calls is made for several iterations.

    `functions`: None for loads and stores; `stores`: of each store, whether it is given the values of several
    iterations; `stacked`: slots that hold such values in the end.
    """

    functions: list[Compute | None]
    stores: list[bool]
    stacked: frozenset[int]


# of a list of calls its plan, None where the results are not the same bits
_PLANS: dict[Hashable, tuple[Plan | None]] = {}


class Stack:
    """A list of calls on slots, none of which gives something to the next iteration; `most` iterations at once."""

    def __init__(self, calls: list[Step], most: int):
        self.most = most
        self._calls = calls
        self._loads = [function for function, *_ in calls if isinstance(function, Load)]
        self._steps: list[Step] | None = None
        self._is_refused = False
        self._count = 0
        # stores that are still to be made: what is stored, and whether it is of several iterations
        self._waiting: list[tuple[Store, Array, bool]] = []
        # slots that hold values of several iterations
        self.stacked: frozenset[int] = frozenset()

    def compute(self, slots: list[Value], count: int) -> bool:
        """Compute so many further iterations; False, and nothing is done, where that has to go one by one."""
        if self._is_refused or not all(load.has_several(count) for load in self._loads):
            return False
        self._count = count
        if self._steps is not None:
            run(self._steps, slots)
        elif not self._begin(slots):
            self._is_refused = True
            return False
        for load in self._loads:
            load.move_on(count)
        for i in range(count):
            for store, value, is_stacked in self._waiting:
                store(value[i] if is_stacked else value)
        self._waiting.clear()
        return True

    def _begin(self, slots: list[Value]) -> bool:
        """The first iterations: as other calls like these, or with a look at each value if there were none."""
        key = self._key(slots)
        if key is None:
            return False
        # looked up once: another thread may empty what is remembered
        known = _PLANS.get(key)
        plan = self._learned(slots) if known is None else known[0]
        if known is None:
            if len(_PLANS) >= MOST_PLANS:
                _PLANS.clear()
            _PLANS[key] = (plan,)
        if plan is None:
            return False
        self._steps = self._bound(plan)
        self.stacked = plan.stacked
        if known is not None:
            run(self._steps, slots)
        return True

    def _key(self, slots: list[Value]) -> Hashable:
        """All that decides how the calls go: functions, slots, and how values lie that are there before the first."""
        names = {id(function): _name(function) for function in {id(call[0]): call[0] for call in self._calls}.values()}
        if None in names.values():
            return None
        before = tuple([(slot, _form(value)) for slot, value in enumerate(slots) if value is not None])
        return tuple([names[id(call[0])] for call in self._calls]), tuple([call[1:] for call in self._calls]), before

    def _learned(self, slots: list[Value]) -> Plan | None:
        """Compute the first iterations, and each value one by one as well; None if something is not the same."""
        functions: list[Compute | None] = []
        stores: list[bool] = []
        stacked: set[int] = set()
        for function, result, *taken in self._calls:
            operands = [slot for slot in taken if slot >= 0]
            several: Compute | None = None
            if isinstance(function, Store):
                stores.append(operands[0] in stacked)
                self._put(function, stores[-1], slots[operands[0]])
            elif isinstance(function, Load):
                slots[result] = self._load(function)
            else:
                several = self._looked_at(function, [(slots[slot], slot in stacked) for slot in operands])
                if several is None:
                    self._waiting.clear()
                    return None
                slots[result] = several(*[slots[slot] for slot in operands])
            functions.append(several)
            if isinstance(function, Load) or stacked.intersection(operands):
                stacked.add(result)
            else:
                stacked.discard(result)
        return Plan(functions, stores, frozenset(stacked))

    def _looked_at(self, function: Compute, given: list[tuple[Value, bool]]) -> Compute | None:
        """What computes it for several iterations, if that gives the same bits, which lie in the same way."""
        if not any(is_stacked for _, is_stacked in given):
            return function
        several = for_several(function, [(np.ndim(value) - is_stacked, is_stacked) for value, is_stacked in given])
        if several is None:
            return None
        whole = several(*[value for value, _ in given])
        for i in range(self._count):
            one = function(*[value[i] if is_stacked else value for value, is_stacked in given])
            alike = isinstance(one, np.ndarray) and whole.shape == (self._count, *one.shape)
            if not alike or _form(whole[i]) != _form(one) or whole[i].tobytes() != one.tobytes():
                return None
        return several

    def _bound(self, plan: Plan) -> list[Step]:
        """The calls for several iterations."""
        stores = iter(plan.stores)
        found: list[Step] = []
        for (function, result, a, b, c), several in zip(self._calls, plan.functions, strict=True):
            if several is None and isinstance(function, Load):
                several = partial(self._load, function)
            elif several is None and isinstance(function, Store):
                several = partial(self._put, function, next(stores))
            assert several is not None
            found.append((several, result, a, b, c))
        return found

    def _load(self, load: Load) -> Array:
        return load.several(self._count)

    def _put(self, store: Store, is_stacked: bool, value: Array) -> None:
        self._waiting.append((store, value, is_stacked))


def _name(function: Compute) -> Hashable:
    """What is equal for calls that do the same; None for one that is made for one iteration only."""
    if isinstance(function, Load):
        return function.form_of_several
    return Store if isinstance(function, Store) else name_of(function)


def _form(value: Value) -> tuple[object, ...]:
    """How a value lies in memory; numbers by their type."""
    return (value.shape, value.strides, value.dtype) if isinstance(value, np.ndarray) else (type(value),)


def run(steps: list[Step], slots: list[Value]) -> None:
    """Make the calls."""
    for function, result, a, b, c in steps:
        if b < 0:
            slots[result] = function() if a < 0 else function(slots[a])
        elif c < 0:
            slots[result] = function(slots[a], slots[b])
        else:
            slots[result] = function(slots[a], slots[b], slots[c])


def last_of(value: Value) -> Value:
    """Of values of several iterations that of the last, with memory of its own where it has no gaps."""
    last: Array = value[-1, ...]
    return last.copy(order="K") if last.flags.forc else last
