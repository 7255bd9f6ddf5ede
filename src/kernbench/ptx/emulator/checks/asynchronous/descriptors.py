"""Checks of matrix descriptors: they must be valid, inside shared memory, and match the layout of the data."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.findings.reporter import thread_name
from kernbench.ptx.emulator.checks.memory.undefined import TILE_HINT
from kernbench.ptx.emulator.lanes.arrays import Bytes, Int, Int32s, Int64s, UInt32s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.memory.arena import UNWRITTEN, WRITTEN
from kernbench.ptx.emulator.memory.cells import APART, SITE_SHIFT, WRITE, head_line, line_of
from kernbench.ptx.emulator.memory.tiles import Tiles
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch
from kernbench.ptx.numerics.matrix.descriptors import PIECE, MatrixDescriptor, TileMap

# tracks the undefined elements of a tile of A or B, described for people; False if they are to be reported
Follows = Callable[[str, Tiles, str], bool]
# how often a tile's layout is compared with that of the copy that wrote it
_LOOKS = 4
# swizzles of descriptors as tensor maps name them
_NAMES = {"128B/32B": "128B.atom32B"}
# number of sampled pieces of a tile
_SAMPLES = 32
_BITS_HINT = "compare the descriptor's bits with the ISA's table of the matrix descriptor"
_LAPSE_FORMAL = "Triton 3.3 to 3.5 have 0b000 in all descriptors of their Blackwell kernels, which run on these GPUs"


class Swizzles:
    """For each 16 bytes of shared memory: the tensor copy that last wrote it, with its swizzle."""

    def __init__(self, batch: Batch, checks: BatchFindings):
        self._checks = checks
        # number of the copy's site plus one
        self._sites: Array = np.zeros(batch.ctas * batch.shared_stride // PIECE, np.int32)
        self._kinds: dict[int, tuple[Site, str]] = {}
        # for compiled loops: for the same number, that of the copy's swizzle, as given by `number`
        self._numbers: Array = np.zeros(len(checks.reporter.program.sites) + 1, np.int64)
        self._names: dict[str, int] = {}
        # buffer for the results of `last_writers`
        self._writers: Array = np.zeros((2, 2 * _SAMPLES), np.int64)

    def note(self, starts: Array, lengths: Array, swizzle: str, site: Site) -> None:
        """A copy fills ranges of shared memory."""
        self._kinds[site.number] = (site, swizzle)
        self._numbers[site.number + 1] = self.number(swizzle)
        mark_pieces(self._sites, starts, lengths, site.number + 1)

    def number(self, swizzle: str) -> int:
        """The number of a swizzle, from 1 on."""
        return self._names.setdefault(swizzle, len(self._names) + 1)

    def agree(self, start: int, offsets: Array, swizzle: str) -> bool:
        """Whether all copies to offsets from a byte on used one swizzle, or there were none."""
        return bool(are_of(self._sites, start, offsets, self._numbers, self.number(swizzle)))

    @property
    def marks(self) -> tuple[Array, Array]:
        """For compiled loops: the number of a copy for each 16 bytes, 0 for none, and the swizzles of copies."""
        return self._sites, self._numbers

    def found(self, start: int, offsets: Array) -> list[tuple[Site, str]]:
        """The copies that last wrote at offsets from a byte on, and their swizzles."""
        if not self._kinds:
            return []
        lines, lanes, _, _ = self._checks.agent_memory("shared")
        copies, instructions = last_writers(self._sites, lines, lanes, start, offsets, self._writers)
        last = {self._checks.sites.numbered[one].number for one in self._writers[1, :instructions].tolist()}
        return [self._kinds[n - 1] for n in sorted(self._writers[0, :copies].tolist()) if n and n - 1 in last]


@lru_cache(1 << 10)
def samples_of(tile: TileMap) -> Array:
    """A sample of a tile's pieces."""
    pieces = tile.pieces.reshape(-1)
    return np.ascontiguousarray(pieces[:: max(1, len(pieces) // _SAMPLES)])


def swizzle_of(named: MatrixDescriptor) -> str:
    """The swizzle of a descriptor in the names of tensor maps; "" if rows do not begin with the pattern."""
    if named.base_offset and named.swizzle != "none":
        return ""
    return _NAMES.get(named.swizzle, named.swizzle)


@kernel
def are_of(sites: Int32s, start: Int, offsets: Int64s, swizzles: Int64s, wanted: int) -> bool:
    """Whether the pieces at offsets were written by no copy, or by copies with the wanted swizzle."""
    for i in range(offsets.size):
        copy = sites[(start + offsets[i]) // PIECE]
        if copy != 0 and swizzles[copy] != wanted:
            return False
    return True


@kernel
def last_writers(
    sites: Int32s, cells: UInt64s, lanes: UInt32s, start: Int, offsets: Int64s, writers: Int64s
) -> tuple[int, int]:
    """The copies recorded for pieces at offsets, and the last writers of their first words, each once.

    Returns their numbers.
    """
    copies, instructions = 0, 0
    for i in range(offsets.size):
        offset = start + offsets[i]
        head = head_line(offset >> 2, lanes)
        line = head if lanes[head, APART] == 0 else line_of(offset >> 2, head, lanes)
        copies = _added(writers, 0, copies, np.int64(sites[offset // PIECE]))
        instructions = _added(writers, 1, instructions, np.int64(cells[line, WRITE] >> np.uint64(SITE_SHIFT)))
    return copies, instructions


@part
def _added(found: Int64s, row: int, count: int, value: Int) -> int:
    """Append a value to a row of `count` values, unless it is there; returns the new count."""
    for i in range(count):
        if found[row, i] == value:
            return count
    found[row, count] = value
    return count + 1


class DescriptorChecks:
    """The checks of one batch's matrix descriptors."""

    def __init__(self, batch: Batch, checks: BatchFindings):
        self._batch, self._checks = batch, checks
        self._reporter = checks.reporter
        self._seen: dict[tuple[int, TileMap, int, str], int] = {}

    def looks(self, which: str, one: Tiles, site: Site) -> bool:
        """Whether a tile's layout is still to be compared with that of the copy that wrote it."""
        return self._seen.get((site.number, one.map, one.base, which), 0) < _LOOKS

    def seen(self, which: str, one: Tiles, site: Site) -> int:
        """Count a use of a tile, and return the count."""
        key = (site.number, one.map, one.base, which)
        times = self._seen[key] = self._seen.get(key, 0) + 1
        return times

    def check(
        self, which: str, tiles: list[Tiles], ctas: Array, lanes: Array, site: Site, follows: Follows | None = None
    ) -> None:
        """Check the tiles of A or B that operations of lanes read in CTAs; `follows` tracks undefined elements."""
        for one in tiles:
            first = int(one.positions[0])
            times = self.seen(which, one, site)
            if times == 1:
                self._meaning(which, one, int(lanes[first]), site)
            if times <= _LOOKS:
                self._swizzle(which, one, int(ctas[first]), int(lanes[first]), site)
            self._contents(which, one, ctas, lanes, site, follows)

    def _meaning(self, which: str, one: Tiles, lane: int, site: Site) -> None:
        named, size = one.descriptor, self._batch.launch.shared_bytes
        end = one.base + one.map.last
        if named.problem:
            self._report(which, lane, site, f"has no meaning: {named.problem}", _BITS_HINT)
        elif end > size:
            what = (
                f"reaches to byte {end} of shared memory, of which the block has {size}: start {named.start:#x}, "
                f"leading offset {named.leading}, stride offset {named.stride}, swizzle {named.swizzle}"
            )
            self._report(which, lane, site, what, "offsets are in units of 16 bytes; check them and the start address")
        if named.lapse:
            self._report(which, lane, site, f"is not as it should be: {named.lapse}", _BITS_HINT, _LAPSE_FORMAL)

    def _swizzle(self, which: str, one: Tiles, cta: int, lane: int, site: Site) -> None:
        """Report a tile that a tensor copy wrote with another swizzle than the descriptor's."""
        named = one.descriptor
        if one.base + one.map.last > self._batch.launch.shared_bytes:
            return
        start = cta * self._batch.shared_stride + one.base
        swizzles, samples, wanted = self._checks.asynchronous.swizzles, samples_of(one.map), swizzle_of(named)
        if swizzles.agree(start, samples, wanted):
            return
        for copy, swizzle in swizzles.found(start, samples):
            if swizzle == wanted:
                continue
            base = f" from row {named.base_offset} of its pattern" if named.base_offset else ""
            what = (
                f"names the swizzle {named.swizzle}{base}; the copy in PTX line {copy.line} laid the tile out with "
                f"{swizzle}, in the pattern of the addresses"
            )
            self._report(which, lane, site, what, "use the same swizzle in the tensor map and in the descriptor")

    def _report(self, which: str, lane: int, site: Site, what: str, hint: str, formal: str = "") -> None:
        message = f"the descriptor of {which} that {thread_name(self._batch, lane)} gives {what}"
        self._reporter.add("descriptor", site, message, hint, about=which, formal=formal)

    def _contents(self, which: str, one: Tiles, ctas: Array, lanes: Array, site: Site, follows: Follows | None) -> None:
        """Report unwritten bytes, or track them."""
        batch = self._batch
        if one.base + one.map.last > batch.launch.shared_bytes:
            return
        state = batch.port.space("shared").state[1]
        where = (ctas, one.positions, one.base, batch.shared_stride)
        operation, offset = unwritten(state, where, one.map.firsts, one.map.spans, one.filled)
        if operation >= 0 and not self._checks.copies.fills(int(offset)):
            lane, origin = int(lanes[operation]), int(ctas[operation]) * batch.shared_stride
            name = self._checks.shared_name(int(offset) - origin)
            if follows is not None and follows(which, one, f"the tile of {which}, the first at {name}"):
                return
            if self._checks.undefined.explains("shared", int(offset), site, lane):
                return
            message = (
                f"the tile of {which} that {thread_name(batch, lane)} multiplies holds shared memory that nobody "
                f"wrote, the first at {name}"
            )
            self._reporter.add("uninitialised-read", site, message, TILE_HINT, about=which)


@kernel
def unwritten(
    state: Bytes, where: tuple[Int64s, Int64s, int, int], firsts: Int64s, spans: Int64s, filled: int
) -> tuple[Int, Int]:
    """The first operation and offset of an accessible but unwritten byte; (-1, 0) for none.

    `where` has the CTAs, positions in these, the base of the tile, and the stride between CTAs in bytes.
    """
    ctas, positions, base, size = where
    for i in range(positions.size):
        origin = ctas[positions[i]] * size + base
        offset = first_unwritten(state, origin, firsts, spans, filled)
        if offset >= 0:
            return positions[i], offset
    return -1, 0


@part
def first_unwritten(state: Bytes, origin: Int, firsts: Int64s, spans: Int64s, filled: Int) -> Int:
    """The first accessible but unwritten byte of a tile, -1 for none."""
    for k in range(firsts.size):
        start = origin + firsts[k]
        for offset in range(start, start + spans[k], 4):
            if state[offset] & WRITTEN == UNWRITTEN and offset % PIECE < filled:
                return offset
    return -1


@kernel
def mark_pieces(marks: Int32s, starts: Int64s, lengths: Int64s, mark: int) -> None:
    """Set the marks of the 16-byte pieces that ranges fill."""
    for i in range(starts.size):
        for piece in range(starts[i] // PIECE, (starts[i] + lengths[i]) // PIECE):
            marks[piece] = mark
