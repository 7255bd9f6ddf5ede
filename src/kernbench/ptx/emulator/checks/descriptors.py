"""Checks of matrix descriptors: that they mean something, lie inside shared memory, and fit what was put there."""

from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.tiles import Tiles
from kernbench.ptx.emulator.checks.reporter import thread_name
from kernbench.ptx.emulator.compiled import kernel
from kernbench.ptx.emulator.memory.arena import UNWRITTEN, WRITTEN
from kernbench.ptx.emulator.program import Site


class DescriptorChecks:
    """The checks of one batch's matrix descriptors."""

    def __init__(self, batch: Any):
        self._batch = batch
        self._reporter = batch.launch.checks.reporter
        self._seen: set[tuple[int, int, int, str]] = set()

    def check(self, which: str, tiles: list[Tiles], ctas: Array, lanes: Array, site: Site) -> None:
        """The tiles of A or B that operations of lanes read in CTAs."""
        for one in tiles:
            first = int(one.positions[0])
            key = (site.number, id(one.map), one.base, which)
            if key not in self._seen:
                self._seen.add(key)
                self._meaning(which, one, int(lanes[first]), site)
            self._contents(which, one, ctas, lanes, site)

    def _meaning(self, which: str, one: Tiles, lane: int, site: Site) -> None:
        said, size = one.descriptor, self._batch.launch.shared_bytes
        end = one.base + one.map.last
        if said.problem:
            hint = "compare the descriptor's bits with the ISA's table of the matrix descriptor"
            self._tell(which, lane, site, f"has no meaning: {said.problem}", hint)
        elif end > size:
            what = (
                f"reaches to byte {end} of shared memory, of which the block has {size}: start {said.start:#x}, "
                f"leading offset {said.leading}, stride offset {said.stride}, swizzle {said.swizzle}"
            )
            self._tell(which, lane, site, what, "offsets are in units of 16 bytes; check them and the start address")
        elif said.misplaced:
            what = (
                f"starts at {said.start:#x}, {said.start % said.period} bytes into the {said.period}-byte pattern of the "
                f"{said.swizzle} swizzle, where its base offset {said.base_offset} says row {said.base_offset}"
            )
            hint = f"align the tile to {said.period} bytes, or give the base offset (address >> 7) & 7 of the pattern"
            self._tell(which, lane, site, what, hint)

    def _tell(self, which: str, lane: int, site: Site, what: str, hint: str) -> None:
        who = thread_name(self._batch, lane)
        self._reporter.add("descriptor", site, f"the descriptor of {which} that {who} gives {what}", hint, about=which)

    def _contents(self, which: str, one: Tiles, ctas: Array, lanes: Array, site: Site) -> None:
        """Bytes that nobody wrote."""
        batch = self._batch
        if one.base + one.map.last > batch.launch.shared_bytes:
            return
        state = batch.port.space("shared").state[1]
        origins = ctas[one.positions].astype(np.int64) * batch.shared_stride + one.base
        operation, place = unwritten(state, origins, one.map.firsts, one.map.spans)
        if operation >= 0:
            lane = int(lanes[one.positions[operation]])
            name = batch.checks.shared_name(int(place - origins[operation] + one.base))
            message = (
                f"the tile of {which} that {thread_name(batch, lane)} multiplies holds shared memory that nobody wrote, "
                f"the first at {name}"
            )
            hint = "check the descriptor's start and offsets, and that every byte of the tile is copied before"
            self._reporter.add("uninitialised-read", site, message, hint, about=which)


@kernel
def unwritten(state: Any, origins: Any, firsts: Any, spans: Any) -> Any:
    """The first operation and place with a byte that may be accessed and was not written; (-1, 0) if there is none."""
    for i in range(origins.size):
        for k in range(firsts.size):
            start = origins[i] + firsts[k]
            for place in range(start, start + spans[k], 4):
                if state[place] & WRITTEN == UNWRITTEN:
                    return i, place
    return -1, 0
