"""The scheduler of a batch: it always runs the fragment that is first in program order, so that lanes reconverge early.

Fragments at the same program point are merged. A fragment that waits (at a barrier, for lanes of its warp, for a change
of memory) is parked with what it waits for, and everything else runs first.
"""

from typing import TYPE_CHECKING

from kernbench.ptx.emulator.barriers.barriers import Barriers
from kernbench.ptx.emulator.barriers.cluster_barrier import ClusterBarrier
from kernbench.ptx.emulator.barriers.gathering import Gathering
from kernbench.ptx.emulator.barriers.waiting import Waiting
from kernbench.ptx.emulator.engine.schedule import Key
from kernbench.ptx.emulator.engine.spinning import Spinning
from kernbench.ptx.emulator.lanes.fragment import FragmentOf
from kernbench.ptx.emulator.lanes.lanes import Lanes, Mask
from kernbench.ptx.emulator.lanes.remembered import joined, parted
from kernbench.ptx.emulator.lanes.window import window_of
from kernbench.ptx.emulator.observer.definedness import UndefinedLoadError
from kernbench.ptx.emulator.program.meter import Meter
from kernbench.ptx.emulator.program.program import Block, ChainOfBlocks, Program
from kernbench.ptx.emulator.program.steps import AnyFragment, AnyWindow, Control, Direct

if TYPE_CHECKING:
    from kernbench.ptx.emulator.engine.batch import Batch

_CACHED_WINDOWS = 64


class Scheduler:
    """Runs the fragments of one batch."""

    def __init__(self, batch: "Batch", program: Program, meter: Meter):
        self.batch = batch
        self.program = program
        self.meter = meter
        self.recorder = batch.recorder
        self.ready: dict[Key, AnyFragment] = {}
        self.barriers = Barriers(self)
        self.gathering = Gathering(self)
        self.spinning = Spinning(self)
        self.waiting = Waiting(self)
        self.cluster = ClusterBarrier(self)
        self._windows: dict[tuple[int, int], AnyWindow] = {}
        self._limit: Key | None = None
        self._fast = batch.launch.fast
        # set once a load has returned undefined bits: from then on blocks run with tracking
        self._following_undefined = False
        if batch.checks.checking and not self._fast.late_tracking:
            self._follow_undefined()

    def key(self, fragment: AnyFragment) -> Key:
        """A fragment's position in program order."""
        return (*fragment.prefix, self.program.blocks[fragment.block].rank)

    def fragment(self, like: AnyFragment, lanes: Lanes, block: int) -> AnyFragment:
        """A fragment of some lanes of `like`, at another basic block."""
        lanes = self._formed(lanes)
        return FragmentOf(lanes, self.window(lanes), block, like.stack, like.prefix, like.block)

    def begin(self, lanes: Lanes, block: int) -> None:
        """Lanes begin the kernel at its entry block."""
        lanes = self._formed(lanes)
        self.push(FragmentOf(lanes, self.window(lanes), block))

    def _formed(self, lanes: Lanes) -> Lanes:
        """A set of lanes as it is, or as a list of warps where registers are not to be used in place."""
        return lanes if self._fast.runs_of_warps else lanes.listed()

    def window(self, lanes: Lanes) -> AnyWindow:
        """The window of a set of lanes; windows of runs are cached."""
        if lanes.warps is not None:
            return window_of(self.batch, lanes)
        run = (lanes.first, lanes.last)
        found = self._windows.get(run)
        if found is None:
            if len(self._windows) >= _CACHED_WINDOWS:
                self._windows.clear()
            found = self._windows[run] = window_of(self.batch, lanes)
        return found

    def push(self, fragment: AnyFragment) -> None:
        """Make a fragment ready; merge it with one at the same program point."""
        key = self.key(fragment)
        other = self.ready.get(key)
        if other is not None:
            fragment = self.merged(other, fragment)
        self.ready[key] = fragment
        if self._limit is None or key < self._limit:
            self._limit = key

    def merged(self, one: AnyFragment, two: AnyFragment) -> AnyFragment:
        """Two fragments at the same program point as one."""
        lanes = self._formed(joined(one.lanes, two.lanes, self.batch.lanes))
        behind = one.behind if one.behind == two.behind else -1
        return FragmentOf(lanes, self.window(lanes), one.block, one.stack, one.prefix, behind)

    def run(self) -> None:
        """Run until every fragment has exited or waits."""
        ready, pick = self.ready, self.batch.launch.schedule.pick
        while ready:
            fragment = ready.pop(pick(ready))
            self._limit = min(ready) if ready else None
            self._run(fragment)
        self.meter.calls = ()

    def _run(self, fragment: AnyFragment) -> None:
        """Run a fragment until it exits, waits, or another fragment comes before it."""
        blocks = self.program.blocks
        block = blocks[fragment.block]
        while True:
            if block.ends:
                # after an exit it no longer matters whether these lanes shared their last barrier with others
                self._end(fragment)
                return
            if block.wait_loop is not None and self.spinning.parks(fragment, block):
                self.meter.lose_way()
                return
            going = self._step(fragment, block)
            if going is None:
                return
            fragment, block = going, blocks[going.block]
            if self._limit is not None and not block.ends and (*fragment.prefix, block.rank) >= self._limit:
                self.push(fragment)
                return

    def _step(self, fragment: AnyFragment, block: Block) -> AnyFragment | None:
        """Run one basic block; returns the fragment if it continues."""
        lanes, window, meter = fragment.lanes, fragment.window, self.meter
        meter.count(block, lanes)
        if self.recorder.recording:
            self.recorder.step(block, lanes)
        meter.calls = fragment.stack
        if fragment.stack:
            frame = fragment.stack[-1]
            meter.lose_way()
            self.batch.set_base(frame.callee, frame.base)
        if self._following_undefined:
            for general in block.watched.steps:
                general(window, lanes.mask)
        elif block.chain is not None and self._chains(lanes) and self._reaches(fragment, block):
            block = self._run_chain(fragment, block, block.chain)
        else:
            self._run_steps(block, window, lanes)
        if block.control is None:
            return fragment.at(block.following)
        result: AnyFragment | None = block.control(self, fragment)
        return result

    def _chains(self, lanes: Lanes) -> bool:
        """Whether chains may run for a set of lanes: a run of warps, all of whose lanes are active."""
        return lanes.mask is None and lanes.warps is None and self._fast.fused_steps

    def _reaches(self, fragment: AnyFragment, block: Block) -> bool:
        """Whether a chain may run to its end: no other fragment comes first, and nothing records steps."""
        assert block.chain is not None
        last = self.program.blocks[block.number + block.chain.further].rank
        if self._limit is not None and (*fragment.prefix, last) >= self._limit:
            return False
        return not self.recorder.recording and self.meter.has_steps(block.chain.sites)

    def _run_chain(self, fragment: AnyFragment, block: Block, chain: ChainOfBlocks) -> Block:
        """Run a block and its chain for all lanes of a run of warps; returns the block reached, with its steps done."""
        window, lanes = fragment.window, fragment.lanes
        self._run_steps(block, window, lanes, block.direct[: chain.first])
        # undefined values appeared: the steps with tracking have run the rest of the block
        if self._following_undefined:
            return block
        left = chain.run(window)
        if left is None:
            self._run_steps(block, window, lanes, block.direct[chain.first :])
            return block
        for _ in range(left.block):
            block = self.program.blocks[block.number + 1]
            self.meter.count(block, lanes)
            fragment.at(block.number)
        behind = block.direct[chain.last :] if left.block == chain.further else ()
        self._run_steps(block, window, lanes, (*left.steps, *behind))
        return block

    def _follow_undefined(self) -> None:
        """Run blocks with tracking of undefined values from now on."""
        self._following_undefined = self.batch.checks.definedness.following = True

    def _run_steps(self, block: Block, window: AnyWindow, lanes: Lanes, some: tuple[Direct, ...] | None = None) -> None:
        """Run the plain steps of a block, or some of them; switch to tracking when a load returns undefined bits."""
        try:
            if not self._fast.fused_steps:
                for general in block.single:
                    general(window, lanes.mask)
            elif lanes.mask is None and lanes.warps is None:
                for step in block.direct if some is None else some:
                    step(window)
            else:
                for general in block.general:
                    general(window, lanes.mask)
        except UndefinedLoadError as met:
            self._follow_undefined()
            watched = block.watched
            for general in watched.steps[watched.positions[met.site] :]:
                general(window, lanes.mask)

    def branch(
        self, fragment: AnyFragment, slot: int, negated: bool, target: int, following: int
    ) -> AnyFragment | None:
        """Send the lanes whose predicate holds to `target`, the others to `following`."""
        taken, rest = _held(fragment.lanes, fragment.window.rows[slot], negated)
        if rest is None:
            return fragment.at(target)
        if taken is None:
            return fragment.at(following)
        self.go(self.fragment(fragment, taken, target))
        self.go(self.fragment(fragment, rest, following))
        return None

    def go(self, fragment: AnyFragment) -> None:
        """Continue lanes after a branch; lanes at the kernel's end exit at once."""
        if self.program.blocks[fragment.block].ends:
            self._end(fragment)
        else:
            self.push(fragment)

    def _end(self, fragment: AnyFragment) -> None:
        """Lanes reach a block that only exits; it is not run."""
        if self.recorder.recording:
            self.recorder.step(self.program.blocks[fragment.block], fragment.lanes)
        self.leave(fragment)

    def under_guard(
        self, fragment: AnyFragment, slot: int, negated: bool, control: Control, following: int
    ) -> AnyFragment | None:
        """Run a control for the lanes whose guard holds; the others continue at `following`."""
        row = fragment.window.rows[slot]
        taken, rest = _held(fragment.lanes, row, negated)
        if rest is None:
            result: AnyFragment | None = control(self, fragment)
            return result
        if taken is None:
            return fragment.at(following)
        self.push(self.fragment(fragment, rest, following))
        going: AnyFragment | None = control(self, self.fragment(fragment, taken, fragment.block))
        if going is not None:
            self.push(going)
        return None

    def split(self, fragment: AnyFragment, chosen: Mask) -> tuple[AnyFragment | None, AnyFragment | None]:
        """The lanes where `chosen` holds and the others, as fragments at the same block."""
        taken, rest = parted(fragment.lanes, chosen)
        if rest is None:
            return fragment, None
        if taken is None:
            return None, fragment
        return self.fragment(fragment, taken, fragment.block), self.fragment(fragment, rest, fragment.block)

    def leave(self, fragment: AnyFragment) -> None:
        """The lanes exit."""
        ended = self.program.blocks[fragment.block].ends
        self.batch.end(fragment.lanes, fragment.behind if ended and fragment.behind >= 0 else fragment.block)
        self.barriers.recheck()
        self.gathering.recheck()


def _held(lanes: Lanes, row: Mask, negated: bool) -> tuple[Lanes | None, Lanes | None]:
    """The lanes for which a predicate holds (or not, if negated), and the others."""
    those, others = parted(lanes, row)
    return (others, those) if negated else (those, others)
