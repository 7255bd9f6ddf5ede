"""Fragments: lanes at the same basic block with the same calls behind them, which run it together."""

from dataclasses import dataclass
from typing import Generic

from kernbench.ptx.emulator.lanes.lanes import Lanes
from kernbench.ptx.emulator.lanes.window import BatchT, Storage, WindowOf


@dataclass(frozen=True, slots=True)
class Transfer:
    """One argument or result of a call, from a frame or slot to a frame or slot.

    In a frame, the number is an offset.
    """

    source: int
    target: int
    nbytes: int
    from_slot: bool
    to_slot: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """A call that has not returned: the block to return to, the called function, and where its frame begins."""

    following: int
    callee: str
    base: int
    top: int
    # transfers of results from the callee's frame to the caller's
    results: tuple[Transfer, ...] = ()


@dataclass(slots=True, eq=False)
class FragmentOf(Generic[BatchT]):
    """Lanes at a basic block; `prefix` has the ranks of the calls behind them, so that keys order all call depths."""

    lanes: Lanes
    window: WindowOf[BatchT]
    block: int
    stack: tuple[Frame, ...] = ()
    prefix: tuple[int, ...] = ()
    # the block that the lanes ran last, -1 if they came from several
    behind: int = -1

    def at(self, block: int) -> "FragmentOf[BatchT]":
        """Move the lanes to another block."""
        self.behind, self.block = self.block, block
        return self

    @property
    def level(self) -> int:
        """The lanes' block in the kernel itself: that of the outermost call, or their own."""
        return self.stack[0].following - 1 if self.stack else self.block

    @property
    def point(self) -> tuple[int, tuple[int, ...]]:
        """The program point; fragments at the same point can be merged."""
        return self.block, self.prefix


# a fragment whose batch does not matter
Fragment = FragmentOf[Storage]
