"""Findings about undefined values: which load returned unwritten bytes, their path, and their effect."""

from dataclasses import replace

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.findings import advice
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, some_threads, thread_name
from kernbench.ptx.emulator.checks.memory.memory import MemoryReporter
from kernbench.ptx.emulator.lanes.arrays import UInt64s
from kernbench.ptx.emulator.lanes.flags import COMPUTED, Key, whole_of
from kernbench.ptx.emulator.lanes.forms import halves
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.slots import RegisterSlot
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, UNWRITTEN, WRITTEN
from kernbench.ptx.emulator.memory.port import Space, Spot, unwritten_bytes
from kernbench.ptx.emulator.observer.definedness import Definedness, Unwritten
from kernbench.ptx.emulator.observer.origins import (
    CONTESTED,
    FOLLOWED,
    VARIABLE,
    Origin,
    is_followed,
    shared_with_others,
)
from kernbench.ptx.emulator.observer.stored import WORD_BYTES
from kernbench.ptx.emulator.observer.values import Moved, UndefinedObserver
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.units.batch import Batch

DIVISION_HINT = "test the divisor first; the result is not defined"
_USES = {
    "guard": "decides whether this runs",
    "target": "decides where this goes",
    "address": "is part of the address",
    "amount": "decides how much is copied",
    "value": "is stored",
    "addend": "is added to by a product",
}
_HANDED_ON = "is handed on"
_MEMORY_HINT = "write the memory before it is read, with a barrier between where others write it"
TILE_HINT = "check the descriptor's start and offsets, and that every byte of the tile is copied before"
_GLOBAL_HINT = (
    f"write it first: where it is made ({advice.MADE}), or by a launch before; "
    "within a launch nothing orders blocks but flags and atomics"
)
_TENSOR_HINT = "let a product or a store fill every column that is loaded, on every path that leads here"
_VARIABLE_HINT = "set the variable on every path that leads here"
_CONTEST_HINT = (
    "let one thread store it, or all the same value; in Triton such threads hold one element, of which each has a "
    "value of its own: where that comes from a row of NaN or of -inf alone, mask the row before it is reduced"
)
_HINTS = {"global": _GLOBAL_HINT, VARIABLE: _VARIABLE_HINT}
# mask for a byte that becomes unwritten again
_LOST = np.uint8(WRITTEN & ~UNWRITTEN)


class UndefinedValues(UndefinedObserver):
    """Tracks undefined values of one batch through memory, and reports them where they have an effect."""

    def __init__(self, batch: Batch, definedness: Definedness, reporter: Reporter, memory: MemoryReporter):
        self._batch, self._definedness = batch, definedness
        self._reporter, self._memory = reporter, memory
        # by the site of contesting stores
        self._contests: dict[int, Origin] = {}

    def loaded(self, space: Space, site: Site, spot: Spot) -> None:
        """A load has read bytes that are unwritten, or hold an undefined value."""
        undefined, offsets = unwritten_bytes(space, spot)
        position, first = self._first_undefined(space, undefined, offsets)
        origin = self._definedness.stored_at(space.name, int(offsets[position]) + first)
        if origin is None or (space.name == "local" and not _outlives_copies(origin)):
            address = (int(spot.addresses[position]) + spot.offset + first) & ((1 << 64) - 1)
            count = int(np.count_nonzero(undefined[position]))
            amount = f"{count} bytes" if count == spot.nbytes else f"{count} of {spot.nbytes} bytes"
            name = self._name(space, address)
            origin = Origin(site, space.name, f"{amount}, {name}" if name else amount)
        forms = self._definedness.forms_at(space.name, offsets, undefined)
        self._definedness.meet_unwritten(Unwritten(undefined, origin, forms))

    def _first_undefined(self, space: Space, undefined: Array, offsets: Array) -> tuple[int, int]:
        """The position and byte to report for a load's undefined bytes: a contested one, if there is one."""
        positions = np.flatnonzero(undefined.any(axis=1))
        firsts = np.argmax(undefined[positions], axis=1)
        if self._definedness.contested:
            for position, first in zip(positions.tolist(), firsts.tolist(), strict=True):
                origin = self._definedness.stored_at(space.name, int(offsets[position]) + first)
                if origin is not None and origin.kind == CONTESTED:
                    return position, first
        return int(positions[0]), int(firsts[0])

    def contested(self, space: Space, site: Site, one: int, other: int, offsets: Array, nbytes: int) -> Origin:
        """Two lanes have stored different values at offsets of a space: these become undefined."""
        known = self._contests.get(site.number)
        if known is None:
            names = " and ".join(thread_name(self._batch, lane) for lane in (other, one))
            where = self._name(space, int(offsets[0]) % self._batch.shared_stride)
            known = Origin(site, CONTESTED, f"{names} store different values to shared memory ({where})")
            self._contests[site.number] = known
        self._definedness.contested = True
        for offset in offsets.tolist():
            self.contested_again(space, offset, nbytes, known)
        return known

    def contested_again(self, space: Space, offset: int, nbytes: int, origin: Origin) -> None:
        """A value stays undefined, since another store was not ordered after the conflict."""
        space.state[1][offset : offset + nbytes] &= ~_LOST
        self._definedness.stored(space.name, np.arange(offset, offset + nbytes), origin)

    def _name(self, space: Space, address: int) -> str:
        if space.name == "shared":
            return self._memory.shared_name(address & ((1 << 24) - 1))
        return self._memory.global_name(address) if space.name == "global" else ""

    def stored(
        self,
        window: Window,
        decoding: Decoding,
        register: Register,
        space: Space,
        offsets: Array,
        bits: Array,
        index: int,
    ) -> None:
        """Undefined bytes of a register were stored, as the element `index` of each position's access."""
        assert decoding.traffic is not None, "a store has bytes"
        nbytes = decoding.traffic[2] // len(decoding.registers_of(1))
        if space.name == "global":
            # computed values, and registers that were never set, are reported at the store; unless a part of one is set
            whole = whole_of(register)
            bits = np.where((bits & COMPUTED != 0) & (bits & whole == whole), np.uint32(0), bits)
        bad = bits[:, None] >> np.arange(nbytes, dtype=np.uint32) & np.uint32(1) != 0
        if not bad.any():
            return
        spots = (offsets[:, None] + index * nbytes + np.arange(nbytes))[bad]
        space.state[1][spots] &= ~_LOST
        key = (register.bank, register.row)
        origin = self._definedness.origin_of(register, key, decoding.site)
        if space.name != "local":
            origin = shared_with_others(origin)
        if len(origin.way) < _LONGEST_WAY and decoding.site not in origin.way and origin.site is not decoding.site:
            origin = replace(origin, way=(*origin.way, decoding.site))
        self._definedness.stored(space.name, spots, origin)
        self._store_forms(window, decoding, register, space, offsets + index * nbytes, bad)
        if space.name == "global":
            self._memory.carried(int(spots[0]) + GLOBAL_BASE, origin, decoding.site)

    def _store_forms(
        self, window: Window, decoding: Decoding, register: Register, space: Space, offsets: Array, bad: Mask
    ) -> None:
        """Words of which all is undefined have the form of what was stored in them."""
        key, lost = (register.bank, register.row), bad.all(axis=1)
        forms = self._definedness.flags.forms_of(window, key)
        if forms is None or not lost.any():
            return
        if bad.shape[1] == WORD_BYTES:
            self._definedness.stored_forms(space.name, offsets[lost], forms[lost])
        if bad.shape[1] == 2 * WORD_BYTES:
            numbers = window.rows[decoding.table.number(RegisterSlot(*key))]
            for number, half in enumerate(halves(forms, numbers)):
                self._definedness.stored_forms(space.name, offsets[lost] + number * WORD_BYTES, half[lost])

    def copied(self, offsets: Array, origin: Origin, site: Site, space: str = "shared") -> None:
        """A copy wrote undefined bytes to offsets of shared memory, or a function to its results in local memory."""
        state = self._batch.port.space(space).state[1]
        state[offsets] &= ~_LOST
        if origin.site is not site and len(origin.way) < _LONGEST_WAY:
            origin = replace(origin, way=(*origin.way, site))
        self._definedness.stored(space, offsets, origin)

    def used(self, window: Window, site: Site, register: str, role: str, bad: Mask, key: Key) -> None:
        """An undefined register has an effect."""
        origin = self._definedness.origins.get(key)
        if origin is not None and not self._definedness.first_use(origin, site):
            return
        lanes = window.lane_numbers[bad]
        if origin is not None and origin.kind in _BY_ORIGIN:
            self._by_origin(origin, site, _USES[role].replace("this", "something"), lanes)
            return
        why, hint, cause = "was never set in", "set the register on every path that leads here", None
        if origin is not None and origin.kind == "tensor":
            # all registers and uses of one load are one finding
            cause = origin.site
            name = origin.site.text.partition(" {")[0]
            why = f"comes from tensor memory (line {origin.site.line}, `{name}`) that nobody wrote, in"
            hint = _TENSOR_HINT
        elif origin is not None:
            why = f"comes from local memory (line {origin.site.line}, `{origin.site.text}`) never written by"
            hint = _VARIABLE_HINT
        message = f"{register} {_USES[role]}, and {why} {some_threads(self._batch, lanes)}"
        own = register if cause is None else ""
        self._reporter.add("uninitialised-read", site, message, hint, len(lanes), about=role, register=own, cause=cause)

    def handed_on(self, window: Window, site: Site, bad: Mask, key: Key, followed: bool) -> None:
        """An undefined value goes to other lanes, or into a product; what compilers leave unset may."""
        origin = self._definedness.origins.get(key)
        reported = _HANDED - FOLLOWED if followed else _HANDED
        if origin is not None and origin.kind in reported and self._definedness.first_use(origin, site):
            self._by_origin(origin, site, _HANDED_ON, window.lane_numbers[bad])

    def exchanged(
        self, window: Window, site: Site, given: tuple[Key, Key, str], moved: Moved, mask: Mask | None
    ) -> None:
        """An undefined value goes to other lanes, which may drop it; values from inactive lanes count as defined.

        So do registers that were never set, in code of no compiler.
        """
        source, target, name = given
        flags, origin = self._definedness.flags, self._definedness.origins.get(source)
        if origin is None and self._batch.program.kernel.module.compiler:
            origin = Origin(site, "register", name)
        origin = None if origin is None else shared_with_others(origin)
        bits = flags.get(window, source) if is_followed(origin) else None
        forms = None
        if bits is not None and origin is not None:
            forms = self._shuffled(window, source, moved) if site.effects.law == "shuffle" else None
            bits = moved(bits)
            bits = np.where(bits == _NOBODYS, np.uint32(0), bits)
            shuffles = origin.shuffles
            if len(shuffles) < _LONGEST_WAY and site not in shuffles:
                shuffles = (*shuffles, site)
            self._definedness.origins[target] = replace(origin, shuffles=shuffles)
        flags.put(window, target, bits, mask, forms)

    def _shuffled(self, window: Window, source: Key, moved: Moved) -> UInt64s | None:
        """The forms of what lanes get of others."""
        forms = self._definedness.flags.forms_of(window, source)
        if forms is None:
            return None
        halves_of_them = [moved((forms >> np.uint64(shift)).astype(np.uint32)).astype(np.uint64) for shift in (0, 32)]
        found: UInt64s = halves_of_them[0] | halves_of_them[1] << np.uint64(32)
        return found

    def explains(self, space: str, offset: int, site: Site, lane: int) -> bool:
        """Report an unwritten read as the undefined value that was stored there, if there is one.

        The reader is a tensor core, a copy or an atomic operation, after which values are not tracked.
        """
        origin = self._definedness.stored_at(space, offset)
        if origin is None or origin.kind not in _HANDED:
            return False
        if self._definedness.first_use(origin, site):
            self._by_origin(origin, site, _HANDED_ON, np.array([lane]))
        return True

    def _by_origin(self, origin: Origin, site: Site, use: str, lanes: Array) -> None:
        """Add a finding at the origin of an undefined value; none if that is a copy reported as not awaited."""
        if origin.site.number in self._reporter.unwaited:
            return
        who = some_threads(self._batch, lanes)
        way = [*(("stored on the way", one) for one in origin.way)]
        way += [*(("passed to other lanes", one) for one in origin.shuffles), (f"where it {use}", site)]
        way += [("or what nobody wrote is read", one) for one in origin.beside]
        others = tuple(dict.fromkeys(line for role, one in way for line in self._reporter.other(role, one)))
        # after a shuffle or reduction, other lanes use the value
        read, in_whom = (f"by {who}", "") if not origin.shuffles else ("and passed to other lanes", f" in {who}")
        kind, hint = "uninitialised-read", _HINTS.get(origin.kind, _MEMORY_HINT)
        if origin.site.effects.in_flight == "multiply":
            hint = TILE_HINT
        if origin.kind == "division":
            kind, hint = "division", DIVISION_HINT
            message = f"integer division by zero in {who}, and the result {use.replace('something', 'this')}"
        elif origin.kind == "register":
            message, hint = _of_register(origin, read, use, in_whom)
        elif origin.kind == CONTESTED:
            kind, hint = "race", _CONTEST_HINT
            message = f"{origin.what} in one instruction, so it may hold either; {who} reads it, and the value {use}"
        else:
            memory = "local" if origin.kind == VARIABLE else origin.kind
            message = f"{memory} memory that nobody wrote ({origin.what}) is read {read}, and the value {use}{in_whom}"
        self._reporter.add(kind, origin.site, message, hint, len(lanes), others)


def _outlives_copies(origin: Origin) -> bool:
    """Whether copies in local memory keep an origin: a variable that was never set is reported at the last of them."""
    own = origin.kind == "register" and not origin.way and not origin.shuffles
    return origin.kind in _HANDED and not own


def _of_register(origin: Origin, read: str, use: str, in_whom: str) -> tuple[str, str]:
    """The end of a message about a register that was never set, and how to correct that."""
    hint = "set the register on every path that leads here"
    if origin.site.effects.exchanges:
        return f"{origin.what} was never set and is passed to other lanes, and the value {use}{in_whom}", hint
    message = f"{origin.what} is stored and was never set; it is read back {read}, and the value {use}{in_whom}"
    return message, f"{hint}, or do not read back what was stored"


# origins at which findings are reported; values from local or tensor memory are reported where they are used
_BY_ORIGIN = FOLLOWED | {"division", CONTESTED}
_HANDED = FOLLOWED | {CONTESTED}
_LONGEST_WAY = 4
# result of an exchange for an inactive lane
_NOBODYS = np.uint32(0xFFFFFFFF)
