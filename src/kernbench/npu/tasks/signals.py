"""Signals between cores: flags, and signals in device memory that are notified and waited for.

A *post* (ffts_cross_core_sync, set_intra_block, tnotify) carries the clock of its pipe to those that wait for it. Flags
are counters of one cluster, or of all cores of a kind; each wait decrements the count of each core it waits for.
Signals are i32 elements of a tensor: tnotify sets one or adds to it, twait waits until all elements of a view compare.

Rows carry the number of the post or the wait, which are listed here. The notifications that a wait on a signal
depends on follow from the whole run (`signal_order`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernbench.npu.tasks.predicates import OPERATORS
from kernbench.result.finding import SourceLocation

if TYPE_CHECKING:
    from kernbench.npu.tasks.task import Block, Task
    from kernbench.npu.tasks.tensors import Buffer, Tensor

# the counters of the chip have four bits
MOST_COUNT, MOST_FLAGS = 15, 16
SETS, ADDS = "set", "add"


@dataclass(frozen=True)
class Post:
    """One post: who made it, and where. A notification also has the element it sets, or adds to, and the value."""

    number: int
    block: "Block"
    lane: int
    pipe: int
    where: SourceLocation
    element: tuple[int, int] | None = None
    op: str = ""
    value: int = 0
    before: int = 0
    # whether it adds to an element that had no value yet, which was reported
    is_unset: bool = False


@dataclass
class Wait:
    """One wait that has ended: a wait on flags has its posts; one on signals its comparison."""

    number: int
    block: "Block"
    lane: int
    where: SourceLocation
    posts: tuple[int, ...] = ()
    elements: tuple[tuple[int, int], ...] = ()
    op: str = ""
    target: int = 0
    # how many posts had been made when it ended
    seen: int = 0
    # whether it began to look at an element that had no value yet, which was reported
    is_unset: bool = False

    def holds(self, value: int) -> bool:
        """Whether a value ends the wait."""
        return bool(OPERATORS[self.op](value, self.target))


# identity of a flag: its kind, and its cores and numbers
Key = tuple[Any, ...]


@dataclass
class Flag:
    """One counter of a core: posts that were not waited for yet, by who made them."""

    posts: dict[object, list[Post]] = field(default_factory=dict)


@dataclass
class Signals:
    """All posts and waits of a launch, the flags with counts, and which blocks use signals."""

    posts: list[Post] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    flags: dict[Key, Flag] = field(default_factory=dict)
    initial: dict[tuple[int, int], int] = field(default_factory=dict)
    posted: set[int] = field(default_factory=set)
    waited: set[int] = field(default_factory=set)

    def post(self, block: "Block", lane: int, pipe: int, where: SourceLocation, **what: Any) -> Post:
        """Record a post."""
        made = Post(len(self.posts), block, lane, pipe, where, **what)
        self.posts.append(made)
        self.posted.add(block.number)
        return made

    def wait(self, block: "Block", lane: int, where: SourceLocation, **what: Any) -> Wait:
        """Record a wait that has ended."""
        made = Wait(len(self.waits), block, lane, where, seen=len(self.posts), **what)
        self.waits.append(made)
        self.waited.add(block.number)
        return made

    def may_order(self, earlier: int, later: int) -> bool:
        """Whether a signal may order the accesses of two blocks so far; decided at the end of the launch."""
        return earlier in self.posted and later in self.waited

    def flag(self, key: Key) -> Flag:
        """One flag as one core sees it."""
        return self.flags.setdefault(key, Flag())

    def left(self, task: "Task") -> list[tuple[Key, Post]]:
        """Posts of a task's flags that were not waited for."""
        return [
            (key, posts[0])
            for key, flag in self.flags.items()
            for posts in flag.posts.values()
            if posts and posts[0].block.task is task
        ]

    def forget(self, task: "Task") -> None:
        """Remove the flags of a task that has ended: they were reported."""
        for flag in self.flags.values():
            for who in [w for w, posts in flag.posts.items() if posts and posts[0].block.task is task]:
                del flag.posts[who]


def unset(verb: str, buffer: "Buffer") -> tuple[str, str, str]:
    """Kind, message and hint of a finding: what uses a signal before it has a value."""
    message = f"{verb} a signal of {buffer.describe()} that nobody surely gave a value before: memory may hold any"
    hint = "CREATE(..., initial_value=0), or store zeros in a task before this one: a notification may come too late"
    return "uninitialised-read", message, hint


def elements_of(tensor: "Tensor") -> tuple[tuple[int, int], ...]:
    """The elements of a view of signals: buffer and offset of each."""
    offsets = [tensor.offset]
    for size, stride in zip(tensor.shape, tensor.strides, strict=True):
        offsets = [o + i * stride for o in offsets for i in range(size)]
    return tuple((tensor.buffer.number, o) for o in offsets)


Ready = Callable[[], bool]
