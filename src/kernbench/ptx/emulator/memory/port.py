"""The port through which steps access memory: selects the space and the compiled kernel, and passes on faults."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.fused.word_loads import load_words
from kernbench.ptx.emulator.lanes.arrays import Int64s
from kernbench.ptx.emulator.lanes.clusters import RANK_SHIFT
from kernbench.ptx.emulator.lanes.lanes import NO_MASK, WARP, Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.memory import access
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, LOCAL_BASE, SHARED_BASE, TRACKED, UNWRITTEN, WRITTEN, Arena
from kernbench.ptx.emulator.memory.atomics import atomic, in_space
from kernbench.ptx.emulator.memory.cells import STORE, TABLE, UPDATE, Shadow, new_cells
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.program.steps import Loaded

_NO_ORIGINS = np.zeros(0, np.uint64)
_NO_DIRTY = np.zeros(1, bool)
_NO_STATE = np.zeros(0, np.uint32)
_NO_BYTES = np.zeros(0, np.uint8)
# bytes of a word, and all bits of an address
_WORD, EVERYWHERE = 4, (1 << 64) - 1
# accesses of one instruction that are reported one by one
_SUSPECTS = 1 << 15
_SPACE_NAMES = {
    "": "generic",
    "global": "global",
    "const": "global",
    "param": "global",
    "param::entry": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "shared::cluster": "shared",
    "local": "local",
    "param::func": "local",
}


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """One state space of a batch: words and states by width, and how addresses become offsets in them."""

    name: str
    words: dict[int, Array]
    state: dict[int, Array]
    size: int
    origins: Array
    dirty: Array


# a constant added to addresses
Offset = int | np.uint64
# each position's address, a constant added to it, and the base address of the space
Accessed = tuple[Array, Offset, int]
# what compiled loops need to enter accesses: the shadow of their space, the site's number, and the scope
Entering = tuple[Shadow, int, int]


# Shared memory for loops that read it themselves, with what they need to enter their reads, and the words that copies
# in flight will fill; None without checks.
SharedReads = tuple[Space, tuple[Entering, Array] | None]
# arguments of machine code that loads by itself: its plan, memory, and the states of its bytes
PlainLoads = tuple[Array, Array, Array]


def offsets_of(accessed: Accessed) -> Array:
    """The offset of each position's access in its space; constants wrap around as addresses do."""
    addresses, offset, base = accessed
    offsets: Array = (addresses + np.uint64(offset) - np.uint64(base)).view(np.int64)
    return offsets


class Checker(Protocol):
    """What the port needs from the checks."""

    # sites of stores whose threads stored different values to one word in one instruction
    contested: set[int]
    # sites of loads through the non-coherent cache
    noncoherent: frozenset[int]

    def note(
        self, space: Space, writes: bool, site: Site, lanes: Array, active: Mask | None, accessed: Accessed, nbytes: int
    ) -> None:
        """Lanes are about to access `nbytes` bytes of a space."""

    def reached(self, ctas: Array, lanes: Array, active: Mask | None, site: Site) -> None:
        """Lanes are about to access shared memory of CTAs of their cluster."""

    def loads_plainly(self, loads: tuple[Loaded, ...], window: Window) -> bool:
        """All lanes of a window are about to load from global memory; no load has a fault.

        Returns whether the checks need nothing else.
        """

    def reads_plainly(
        self, space: Space, site: Site, addresses: Array, lanes: Array
    ) -> "tuple[Entering, Array] | None":
        """Whole warps are about to read shared memory at `addresses`; no word has a fault.

        Returns what is needed to enter the reads, and the words that copies will fill; None if each access must be
        checked.
        """

    def limits(self, site: int) -> tuple[int, int] | None:
        """The first offset and the size of the array that a load is meant for.

        That is all memory if unknown, and None if each access must be checked.
        """

    def arguments(self, space: Space, site: Site, scope: int) -> Entering:
        """The space's shadow, the site's number and the scope of the access, for compiled kernels."""

    def trouble(self, space: Space, site: Site, what: str, spot: "Spot", report: Int64s) -> None:
        """Turn the faults in the report into findings."""

    def read_noncoherently(self, site: Site, lanes: Array, starts: Array, nbytes: int) -> None:
        """Lanes read memory that the launch may write, at a site of `noncoherent`, each from one of `starts` on."""

    def loaded(self, site: Site) -> None:
        """A load with a fault is complete, in all spaces."""

    def stored_again(self, space: Space, spot: "Spot") -> None:
        """A store at a site of `contested` is complete."""


@dataclass(frozen=True, slots=True, eq=False)
class Spot:
    """An access with a fault: each position's lane and address, its width, and its scope if strong.

    `stored` is the stored registers of each lane of the batch, [values, lanes]. `base` is the base address of the
    space, `active` the positions that made the access.
    """

    lanes: Array
    addresses: Array
    offset: int
    nbytes: int
    scope: int = 0
    stored: Array | None = None
    base: int = 0
    active: Mask | None = None


def starts_of(space: Space, spot: Spot) -> tuple[Array, Array]:
    """The offset of each position's access in a space, and which positions made a legal access."""
    starts = offsets_of((spot.addresses, spot.offset, spot.base))
    legal = (starts >= 0) & (starts <= space.size - spot.nbytes) & (starts % spot.nbytes == 0)
    legal = legal if spot.active is None else legal & spot.active
    if space.origins.size:
        starts = starts + space.origins[spot.lanes].astype(np.int64)
    return starts, legal


def unwritten_bytes(space: Space, spot: Spot) -> tuple[Array, Array]:
    """Which bytes that a load read are unwritten, [positions, bytes], and the offset of each position's access."""
    starts, legal = starts_of(space, spot)
    found = np.zeros((spot.lanes.size, spot.nbytes), bool)
    states = space.state[1][starts[legal][:, None] + np.arange(spot.nbytes)]
    found[legal] = states & ~np.uint8(TRACKED) == UNWRITTEN
    return found, starts


def space_of(modifier: str) -> str:
    """The kind of memory for an instruction's space modifier: "global", "shared", "local" or "generic"."""
    return _SPACE_NAMES[modifier]


class Port:
    """Loads, stores and atomics of one batch.

    Without a checker other loops run, which check bounds only. A null checker would have to be called for each access,
    in the most frequent path of launches without checks.
    """

    # the state of a readable byte that is not watched
    written = WRITTEN

    def __init__(self, batch: BatchHub, arena: Arena, shared: Space, local: Space, checker: Checker | None):
        self._batch = batch
        self._spaces = {"shared": shared, "local": local}
        self._arena = arena
        self._checker = checker
        self._report = access.new_report(0 if checker is None else _SUSPECTS, cleared=False)
        self._fast = batch.launch.fast
        self.changes = 0
        # how many of these are stores of threads to shared memory
        self.shared_stores = 0
        # plans of loads by machine code, by identity, with the size of memory they were made for
        self._plans: dict[int, tuple[tuple[Loaded, ...], int, Array | None]] = {}
        self._noted: tuple[Array, Array] = (np.empty(1, np.int64), np.empty(0, np.uint64))

    def _room(self, positions: int) -> tuple[Array, Array]:
        """Buffers for the positions and offsets that a checked access must enter, and their number."""
        if self._noted[0].size <= positions:
            self._noted = np.empty(positions + 1, np.int64), np.empty(positions, np.uint64)
        return self._noted

    def space(self, name: str) -> Space:
        """A space; the arena may have grown since the batch was made."""
        if name == "global":
            arena = self._arena
            return Space("global", arena.words, arena.state, arena.used, _NO_ORIGINS, arena.dirty)
        return self._spaces[name]

    def parts(
        self, name: str, addresses: Array, offset: np.uint64, mask: Mask | None
    ) -> "list[tuple[Space, int, Mask | None]]":
        """The spaces an access touches, the base address of each, and the lanes that touch it."""
        if name != "generic":
            return [(self.space(name), GLOBAL_BASE if name == "global" else 0, mask)]
        codes = np.empty(addresses.size, np.uint8)
        counts = access.survey_spaces(addresses, offset, NO_MASK if mask is None else mask, codes)
        touched = [number for number, count in enumerate(counts) if count]
        order = (("global", GLOBAL_BASE), ("local", LOCAL_BASE), ("shared", SHARED_BASE))
        if len(touched) == 1:
            space, base = order[touched[0]]
            return [(self.space(space), base, mask)]
        return [(self.space(order[n][0]), order[n][1], codes == n) for n in touched]

    def _in_cluster(
        self, part: Space, addresses: Array, offset: np.uint64, lanes: Array, active: Mask | None, site: Site
    ) -> tuple[Space, Array, np.uint64]:
        """Shared memory of a cluster: each lane's address may be in another CTA, whose rank it contains."""
        cluster = self._batch.cluster
        if part.name != "shared" or cluster.size == 1:
            return part, addresses, offset
        full = addresses + offset
        ctas, _ = cluster.find(full, lanes)
        if self._checker is not None:
            self._checker.reached(ctas, lanes, active, site)
        origins = part.origins.copy()
        chosen = lanes if active is None else lanes[active]
        origins[chosen] = (
            np.maximum(ctas, 0) if active is None else np.maximum(ctas[active], 0)
        ) * self._batch.shared_stride
        own = np.where(ctas < 0, full, full & ~np.uint64(0xFF << RANK_SHIFT))
        return replace(part, origins=origins), own, np.uint64(0)

    def addresses(self, window: Window, slot: int) -> Array:
        """An address operand as one 64-bit address for each position.

        32-bit addresses are sign-extended: with the offset added, a negative address wraps around.
        """
        row = window.rows[slot]
        if row.ndim and row.dtype == np.uint64:
            return row
        wide = window.scratch("uint64", 7)
        if row.dtype == np.uint32:
            wide.view(np.int64)[...] = row.view(np.int32)
        else:
            wide[...] = row
        return wide

    def _real(self, space: str, addresses: Array, offset: np.uint64) -> Array:
        """Translate aliases of host memory to addresses in the arena."""
        aliases = self._arena.aliases
        if aliases is None or space in ("shared", "local"):
            return addresses
        return aliases.translated(addresses, offset)

    def _lasting(self, addresses: Array, registers: Array, rows: Array | tuple[int, ...]) -> Array:
        """Addresses for findings: copied if the results overwrite the address register."""
        if self._checker is None or registers.dtype != addresses.dtype:
            return addresses
        same = any(row >= 0 and np.may_share_memory(addresses, registers[row]) for row in rows)
        return addresses.copy() if same else addresses

    def load(
        self,
        space: str,
        addresses: Array,
        lanes: Array,
        offset: np.uint64,
        bank: str,
        rows: Array,
        mask: Mask | None,
        site: Site,
        scope: int = 0,
    ) -> None:
        """Load one element for each row from each active position's address into the registers of its lane."""
        registers = self._batch.banks[bank]
        addresses = self._real(space, self._lasting(addresses, registers, rows), offset)
        wrong = False
        for part, base, active in self.parts(space, addresses, offset, mask):
            part, at, by = self._in_cluster(part, addresses, offset, lanes, active, site)
            memory = part.words[registers.itemsize]
            where = (at, by, np.uint64(base), np.uint64(part.size), part.origins)
            moved = (registers, rows, lanes, NO_MASK if active is None else active)
            if self._checker is not None:
                self._checker.note(part, False, site, lanes, active, (at, by, base), registers.itemsize * rows.size)
            if self._fast.word_loads and self._is_loaded(part, (at, by, base), registers, rows, lanes, active):
                continue
            if self._checker is None:
                trouble = access.load(memory, where, moved, self._report)
            else:
                noted = self._room(lanes.size)
                state = part.state[registers.itemsize]
                trouble = access.checked_load(memory, state, where, moved, self._report, *noted)
                self._mark(part, noted, registers.itemsize * rows.size, False)
                shadow, number, seen = self._checker.arguments(part, site, scope)
                if noted[0][-1] and seen != access.UNSEEN:
                    span = np.uint64(registers.itemsize * rows.size)
                    if site.number in self._checker.noncoherent:
                        count = int(noted[0][-1])
                        self._checker.read_noncoherently(site, lanes[noted[0][:count]], noted[1][:count], int(span))
                    trouble = access.note_reads(*noted, span, lanes, self._report, shadow, number, seen)
            if trouble:
                wrong, wide = True, registers.itemsize * rows.size
                self._report_trouble(part, site, "load", Spot(lanes, at, int(by), wide, scope, None, base, active))
        if wrong and self._checker is not None:
            self._checker.loaded(site)

    def _is_loaded(
        self, part: Space, where: Accessed, registers: Array, rows: Array, lanes: Array, active: Mask | None
    ) -> bool:
        """Try the fast path, which loads words without faults; False if the load must be done elsewhere."""
        plain = active is None and registers.itemsize == _WORD and rows.size == 1 and not part.origins.size
        words = load_words(WRITTEN) if plain and part.size >= _WORD and lanes.size and lanes.size % 8 == 0 else None
        if words is None:
            return False
        addresses, offset, base = where
        state = _NO_STATE if self._checker is None else part.state[_WORD]
        by, last = np.uint64((int(offset) - base) & EVERYWHERE), np.uint64(part.size - _WORD)
        return words(addresses, part.words[_WORD], state, registers, lanes, int(rows[0]), by, last) == lanes.size

    def plain_loads(self, loads: tuple[Loaded, ...], window: Window) -> PlainLoads | None:
        """What machine code needs to make loads from global memory itself, for all lanes of a window.

        None if it cannot: if there are aliases of host memory, or if the checks want to see each load. The plan is
        described in `fused.chain_code`.
        """
        arena = self._arena
        if arena.aliases is not None or (self._checker is not None and not self._checker.loads_plainly(loads, window)):
            return None
        known = self._plans.get(id(loads))
        if known is None or known[0] is not loads or known[1] != arena.used:
            known = self._plans[id(loads)] = (loads, arena.used, self._plan(loads))
        if known[2] is None:
            return None
        return known[2], arena.words[1], _NO_BYTES if self._checker is None else arena.state[1]

    def plain_source(self) -> tuple[Array, Array, int, int] | None:
        """Words of global memory, their states if checked, the base address, and the size in bytes.

        None if there are aliases of host memory.
        """
        arena = self._arena
        if arena.aliases is not None:
            return None
        return arena.words[_WORD], _NO_STATE if self._checker is None else arena.state[_WORD], GLOBAL_BASE, arena.used

    def note_loads(
        self, addresses: Array, lanes: Array, offset: np.uint64, nbytes: int, mask: Mask | None, site: Site
    ) -> None:
        """Active positions load from global memory without faults."""
        if self._checker is not None:
            accessed = (addresses, offset, GLOBAL_BASE)
            self._checker.note(self.space("global"), False, site, lanes, mask, accessed, nbytes)

    def shared_reads(self, addresses: Array, lanes: Array, site: Site) -> SharedReads | None:
        """What loops need to read shared memory themselves, for whole warps; None if they cannot."""
        part = self.space("shared")
        if self._batch.cluster.size != 1:
            return None
        if self._checker is None:
            return part, None
        entered = self._checker.reads_plainly(part, site, addresses, lanes)
        return None if entered is None else (part, entered)

    def _plan(self, loads: tuple[Loaded, ...]) -> Array | None:
        found: list[int] = []
        for load in loads:
            limits = (0, EVERYWHERE) if self._checker is None else self._checker.limits(load.site)
            if limits is None or self._arena.used < load.nbytes:
                return None
            found += ((load.offset - GLOBAL_BASE) & EVERYWHERE, self._arena.used - load.nbytes, *limits)
        return np.array(found, np.uint64)

    def store(
        self,
        space: str,
        addresses: Array,
        lanes: Array,
        offset: np.uint64,
        bank: str,
        rows: Array,
        mask: Mask | None,
        site: Site,
        scope: int = 0,
        kind: int = STORE,
        changing: bool = True,
    ) -> None:
        """Store one element for each row to each active position's address from the registers of its lane.

        Unless it is `changing`, each value is in memory already: loops that poll are not woken.
        """
        registers = self._batch.banks[bank]
        addresses = self._real(space, addresses, offset)
        for part, base, active in self.parts(space, addresses, offset, mask):
            # local memory is invisible to other threads
            self.changes += changing and part.name != "local"
            self.shared_stores += changing and part.name == "shared"
            part, at, by = self._in_cluster(part, addresses, offset, lanes, active, site)
            memory = part.words[registers.itemsize]
            where = (at, by, np.uint64(base), np.uint64(part.size), part.origins)
            moved = (registers, rows, lanes, NO_MASK if active is None else active)
            if self._checker is None:
                trouble = access.store(memory, part.dirty, where, moved, self._report)
            else:
                self._checker.note(part, True, site, lanes, active, (at, by, base), registers.itemsize * rows.size)
                noted = self._room(lanes.size)
                state = part.state[registers.itemsize]
                trouble = access.checked_store(memory, state, part.dirty, where, moved, self._report, *noted)
                self._mark(part, noted, registers.itemsize * rows.size, True)
                if noted[0][-1]:
                    shadow, number, reach = self._checker.arguments(part, site, scope)
                    wide = np.uint64(registers.itemsize * rows.size)
                    trouble = access.note_writes(*noted, wide, lanes, self._report, shadow, number, reach, kind)
            contested = self._checker is not None and site.number in self._checker.contested
            if trouble or contested:
                span = registers.itemsize * rows.size
                spot = Spot(lanes, at, int(by), span, scope, registers[rows], base, active)
                if trouble:
                    self._report_trouble(part, site, "store", spot)
                if contested and self._checker is not None:
                    self._checker.stored_again(part, spot)

    def deliver(self, addresses: Array, targets: Array, lanes: Array, words: Array, site: Site) -> bool:
        """Write the words of lanes' copies, [words, lanes], to shared memory from the 4-byte words `targets` on.

        Does nothing and returns False if any lane has a fault.
        """
        part, count = self.space("shared"), len(words)
        memory, state = part.words[4], part.state[4]
        if self._batch.cluster.size != 1 or part.size < 4 * count:
            return False
        if self._checker is None:
            done = bool(access.deliver(memory, targets, words))
            self.changes += done
            self.shared_stores += done
            return done
        if not access.may_deliver(state, targets, addresses, np.uint64(part.size - 4 * count), count):
            return False
        self.changes += 1
        self.shared_stores += 1
        self._checker.note(part, True, site, lanes, None, (addresses, np.uint64(0), 0), 4 * count)
        noted = self._room(lanes.size)
        access.checked_deliver(memory, state, targets, words, *noted)
        shadow, number, scope = self._checker.arguments(part, site, 0)
        wide = np.uint64(4 * count)
        if noted[0][-1] and access.note_writes(*noted, wide, lanes, self._report, shadow, number, scope, STORE):
            stored = np.zeros((count, self._batch.lanes), np.uint32)
            stored[:, lanes] = words
            self._report_trouble(part, site, "store", Spot(lanes, addresses, 0, 4 * count, 0, stored))
        return True

    def located(
        self, space: str, addresses: Array, lanes: Array, offset: np.uint64, nbytes: int, mask: Mask | None
    ) -> list[tuple[Space, Array, Mask]]:
        """The spaces that active positions access, the offsets in each, and which positions access it legally."""
        found = []
        addresses = self._real(space, addresses, offset)
        for part, base, active in self.parts(space, addresses, offset, mask):
            full = addresses + offset
            inside = np.ones(lanes.size, bool) if active is None else active.copy()
            if part.name == "shared":
                ctas, starts = self._batch.cluster.find(full, lanes)
                inside &= ctas >= 0
                origins: Array | np.int64 = ctas.astype(np.int64) * self._batch.shared_stride
            else:
                starts = offsets_of((addresses, offset, base))
                origins = part.origins[lanes].astype(np.int64) if part.origins.size else np.int64(0)
            inside &= (starts >= 0) & (starts <= part.size - nbytes) & (full & np.uint64(nbytes - 1) == 0)
            found.append((part, starts + origins, inside))
        return found

    def saw(self, space: str, addresses: Array, lanes: Array, nbytes: int, mask: Mask, site: Site) -> None:
        """Earlier loads of active lanes, at `site`, count as reads from now on."""
        if self._checker is None:
            return
        addresses = self._real(space, addresses, np.uint64(0))
        for part, base, active in self.parts(space, addresses, np.uint64(0), mask):
            part, at, by = self._in_cluster(part, addresses, np.uint64(0), lanes, active, site)
            shadow, number, _ = self._checker.arguments(part, site, 0)
            where = (at + by, np.uint64(base), np.uint64(part.size), part.origins, np.uint64(nbytes))
            if access.enter_loads(
                part.state[1], *where, lanes, mask if active is None else active, self._report, shadow, number
            ):
                self._report_trouble(part, site, "load", Spot(lanes, at, int(by), nbytes))

    def announce(self, addresses: Array, lanes: Array, nbytes: int, mask: Mask | None, site: Site) -> None:
        """An asynchronous write to shared memory may happen from now on: check it for races."""
        if self._checker is None:
            return
        part, addresses, _ = self._in_cluster(self.space("shared"), addresses, np.uint64(0), lanes, mask, site)
        self._checker.note(part, True, site, lanes, mask, (addresses, 0, 0), nbytes)
        more = self._checker.arguments(part, site, 0)
        active = NO_MASK if mask is None else mask
        trouble = access.announce_store(
            part.state[1],
            addresses,
            np.uint64(part.size),
            part.origins,
            np.uint64(nbytes),
            lanes,
            active,
            self._report,
            *more,
        )
        if trouble:
            self._report_trouble(part, site, "store", Spot(lanes, addresses, 0, nbytes))

    def atomic(
        self,
        space: str,
        addresses: Array,
        lanes: Array,
        offset: np.uint64,
        bank: str,
        rows: tuple[int, int, int],
        operation: int,
        mask: Mask | None,
        site: Site,
        scope: int,
        kind: int = UPDATE,
    ) -> None:
        """Read, change and write each active lane's word; rows are the old value's (or -1), b's and c's."""
        registers = self._batch.banks[bank]
        addresses = self._real(space, self._lasting(addresses, registers, rows[:1]), offset)
        for part, base, active in self.parts(space, addresses, offset, mask):
            part, at, by = self._in_cluster(part, addresses, offset, lanes, active, site)
            memory, state = part.words[registers.itemsize], part.state[registers.itemsize]
            where = (at, by, np.uint64(base), np.uint64(part.size), part.origins)
            moved = (registers, rows, lanes, NO_MASK if active is None else active)
            checked = self._checker is not None
            if self._checker is not None:
                self._checker.note(part, True, site, lanes, active, (at, by, base), registers.itemsize)
            if part.name == "global" and self._arena.footprint is not None:
                self._arena.footprint.lanes(offsets_of((at, by, base)), active, registers.itemsize)
            noted = (*self._arguments(part, site, scope), kind)
            code = in_space(operation, part.name, registers.itemsize)
            self.changes += atomic(memory, state, part.dirty, where, moved, code, self._report, checked, noted)
            if self._report[: len(access.CODES), 0].any():
                self._report_trouble(
                    part, site, "atomic", Spot(lanes, at, int(by), registers.itemsize, scope, None, base, active)
                )

    def _mark(self, part: Space, noted: tuple[Array, Array], nbytes: int, writes: bool) -> None:
        """If parts of the launch may run apart: add the noted accesses to the footprint."""
        if self._arena.footprint is not None and part.name == "global" and noted[0][-1]:
            self._arena.footprint.words(noted[1], int(noted[0][-1]), nbytes, writes)

    def _arguments(self, part: Space, site: Site, scope: int) -> Entering:
        if self._checker is not None:
            return self._checker.arguments(part, site, scope)
        return UNCHECKED, site.number, scope

    def _report_trouble(self, part: Space, site: Site, what: str, spot: Spot) -> None:
        if self._checker is not None:
            self._checker.trouble(part, site, what, spot, self._report)
        self._report[: len(access.CODES)] = 0


# the shadow of unchecked accesses: see `cells`
UNCHECKED: Shadow = (
    *new_cells(1),
    np.zeros((2, TABLE), np.int64),
    np.zeros((1, 1, 1), np.int32),
    np.zeros((1, WARP + 1, WARP), np.int32),
    np.zeros((1, 1), np.int32),
    np.zeros(0, np.int64),
)
