"""Spinning: a loop that came round without changing anything waits for memory, and is parked instead of run."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.fragment import Fragment
from kernbench.ptx.emulator.program import Block, WaitLoop

# rounds of a loop that changes something each time, after which others run first: where it reads what others write,
# and where it probably only computes
_PATIENCE = 32
_LONG_PATIENCE = 4096


@dataclass(slots=True, eq=False)
class _Round:
    """What a loop looked like when it last came round: values that go round it, and changes of memory so far."""

    values: tuple[Array, ...]
    changes: int
    count: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Spinner:
    """A parked loop; `changes` of memory when it looked last, or None if it only lets others go first."""

    fragment: Fragment
    loop: WaitLoop
    changes: int | None


class Spinning:
    """Loops of one batch that wait."""

    def __init__(self, scheduler: Any):
        self._scheduler = scheduler
        self._batch = scheduler.batch
        self.parked: list[Spinner] = []

    def parks(self, fragment: Fragment, block: Block) -> bool:
        """Called at a loop's head: whether the fragment is to wait."""
        loop = block.wait_loop
        assert loop is not None
        last: _Round | None = fragment.rounds.get(loop.head)
        if loop.carried is None:
            return self._yields(fragment, loop, last, (), 0)
        changes = self._batch.changes()
        values = tuple(np.array(fragment.window.rows[slot]) for slot in loop.carried)
        if last is not None and last.changes == changes and self._same(fragment, last.values, values):
            self._park(fragment, loop, changes)
            return True
        return self._yields(fragment, loop, last, values, changes)

    def _yields(
        self, fragment: Fragment, loop: WaitLoop, last: _Round | None, values: tuple[Array, ...], changes: int
    ) -> bool:
        """A loop that changes something each time lets others go first now and then."""
        count = 1 if last is None else last.count + 1
        fragment.rounds[loop.head] = _Round(values, changes, count)
        if count % (_PATIENCE if loop.carried is not None else _LONG_PATIENCE):
            return False
        self._park(fragment, loop, None)
        return True

    def _park(self, fragment: Fragment, loop: WaitLoop, changes: int | None) -> None:
        fragment.rounds.clear()
        self.parked.append(Spinner(fragment, loop, changes))

    def _same(self, fragment: Fragment, before: tuple[Array, ...], now: tuple[Array, ...]) -> bool:
        mask = fragment.lanes.mask
        for old, new in zip(before, now, strict=True):
            differs = old != new
            if (differs if mask is None else differs & mask).any():
                return False
        return True

    def wake_changed(self) -> bool:
        """Nothing else can run: loops look again if memory has changed since they looked."""
        changes = self._batch.changes()
        return self._wake([s for s in self.parked if s.changes is not None and s.changes != changes])

    def wake_yielded(self) -> bool:
        """Nothing else can run at all: loops that let others go first go on."""
        return self._wake([spinner for spinner in self.parked if spinner.changes is None])

    def _wake(self, waking: list[Spinner]) -> bool:
        self.parked = [spinner for spinner in self.parked if spinner not in waking]
        for spinner in waking:
            self._scheduler.push(spinner.fragment)
        return bool(waking)
