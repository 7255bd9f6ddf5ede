"""Rings: the resources of a submit, reclaimed in order, and the proof that a full ring can never drain.

A ring has task slots, heap for tensors the runtime makes, and dependence entries. The oldest slot is reclaimed when its
task, all tasks that depend on it and all that use a tensor it made are done and its scope is closed.
"""

from collections import deque
from dataclasses import dataclass, field

from kernbench.npu.tasks.task import Task

HEAP_ALIGNMENT = 1024
PARTS = ("window", "heap", "dependences")
_UNITS = {"window": "task slots", "heap": "bytes of heap", "dependences": "dependence entries"}


@dataclass(frozen=True)
class Slot:
    """The resources of one task: (slots, bytes, entries), and the scope it was submitted in."""

    task: Task
    scope: int
    amounts: tuple[int, int, int]


@dataclass
class Ring:
    """One ring. After a proved deadlock its sizes grow, so that the smallest sufficient sizes can be reported."""

    number: int
    sizes: tuple[int, int, int]
    slots: deque[Slot] = field(default_factory=deque)
    used: list[int] = field(default_factory=lambda: [0, 0, 0])
    needed: list[int] = field(default_factory=lambda: [0, 0, 0])
    peak: list[int] = field(default_factory=lambda: [0, 0, 0])
    stalls: int = 0

    def lacking(self, amounts: tuple[int, int, int]) -> list[str]:
        """The resources that are short for this much more."""
        parts = zip(PARTS, self.sizes, self.used, amounts, self.needed, strict=True)
        return [name for name, size, used, more, grown in parts if used + more > max(size, grown)]

    def take(self, slot: Slot) -> None:
        """A submitted task takes its slot."""
        self.slots.append(slot)
        for i, amount in enumerate(slot.amounts):
            self.used[i] += amount
            self.peak[i] = max(self.peak[i], self.used[i])

    def reclaim(self, closed: set[int], tasks: list[Task]) -> bool:
        """Reclaim what can be, oldest first; whether there was any."""
        before = len(self.slots)
        while self.slots and self.is_free(self.slots[0], closed, tasks):
            for i, amount in enumerate(self.slots.popleft().amounts):
                self.used[i] -= amount
        return len(self.slots) < before

    def is_free(self, slot: Slot, closed: set[int], tasks: list[Task]) -> bool:
        """Whether a slot is no longer needed."""
        task = slot.task
        return slot.scope in closed and task.done and all(tasks[c].done for c in task.consumers | task.users)

    def grow(self, amounts: tuple[int, int, int]) -> None:
        """Nothing can be reclaimed: increase the sizes to what is needed at least."""
        for i, amount in enumerate(amounts):
            self.needed[i] = max(self.needed[i], self.used[i] + amount)

    def least(self) -> str:
        """The smallest sufficient sizes, where the given ones are too small."""
        parts = zip(PARTS, self.sizes, self.needed, strict=True)
        return ", ".join(f"tasks.{name} = {need}" for name, size, need in parts if need > size)

    def usage(self, parts: list[str]) -> str:
        """Size and use of some resources."""
        both = {name: (size, used) for name, size, used in zip(PARTS, self.sizes, self.used, strict=True)}
        return " and ".join(f"{both[p][1]} of {both[p][0]} {_UNITS[p]}" for p in parts)
