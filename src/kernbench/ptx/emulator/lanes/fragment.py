"""Fragments: lanes that stand at the same block with the same calls behind them, and run it together."""

from dataclasses import dataclass
from typing import Generic

from kernbench.ptx.emulator.lanes.lanes import Lanes
from kernbench.ptx.emulator.lanes.window import BatchT, Storage, WindowOf


@dataclass(frozen=True, slots=True)
class Transfer:
    """One value of a call: from a frame or a slot to a frame or a slot; whichever is in a frame is an offset."""

    source: int
    target: int
    nbytes: int
    from_slot: bool
    to_slot: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """A call that has not returned: where to go on, which function was called, and where its frame begins."""

    following: int
    callee: str
    base: int
    top: int
    # transfers of results from the callee's frame to the caller's
    results: tuple[Transfer, ...] = ()


@dataclass(slots=True, eq=False)
class FragmentOf(Generic[BatchT]):
    """Lanes at a block; `prefix` holds the ranks of the calls behind them, so that keys order all depths."""

    lanes: Lanes
    window: WindowOf[BatchT]
    block: int
    stack: tuple[Frame, ...] = ()
    prefix: tuple[int, ...] = ()
    # the block that the lanes ran last, -1 where they came from several
    behind: int = -1

    def at(self, block: int) -> "FragmentOf[BatchT]":
        """The same lanes at another block."""
        self.behind, self.block = self.block, block
        return self

    @property
    def level(self) -> int:
        """The block of the kernel itself in which the lanes stand: that of the outermost call, or their own."""
        return self.stack[0].following - 1 if self.stack else self.block

    @property
    def point(self) -> tuple[int, tuple[int, ...]]:
        """The program point: fragments at the same one may be joined."""
        return self.block, self.prefix


# where its lanes and rows are all that matters of a fragment
Fragment = FragmentOf[Storage]
