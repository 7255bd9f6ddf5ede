"""Steps that track undefined values: for each register, one bit for each undefined byte.

A value is undefined if a register was never set, if it was loaded from unwritten memory (local or tensor memory; in
compiled code shared and global memory, too), or if a compiler's integer division has a divisor of zero. Copies keep the
bits of single bytes. A value computed from a register without any defined byte is undefined as a whole; a register with
some defined bytes counts as defined there. An undefined value is reported where it has an effect: in an address, a
branch, or memory that others may read.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.analysis.undefined.cancelling import cancelling, unknown
from kernbench.ptx.emulator.analysis.undefined.copying import (
    Bits,
    as_whole,
    copies,
    in_part,
    key_of,
    lose,
    undefined,
)
from kernbench.ptx.emulator.analysis.undefined.matrices import product
from kernbench.ptx.emulator.lanes.flags import Key, Registers, whole_of
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.slots import RegisterSlot
from kernbench.ptx.emulator.observer.origins import is_followed
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import Marks, Step, action, guarded
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.text.module import Integer, Name, Not, Operand
from kernbench.ptx.text.types import TYPES


def watch(decoding: Decoding, register: Register, soft: bool, under: tuple[Register, ...] = ()) -> Step | None:
    """A step that reports lanes in which an undefined register has an effect; None if it cannot.

    `soft` (compiled) code may store undefined values in shared memory, and copy those from memory. `under` are the
    predicates of choices around a branch. Lanes in which one of them is undefined may branch on what they like: all
    that they compute on the way is undefined where the choice ends.
    """
    site, name, role = decoding.site, register.name, decoding.role_of(register)
    stored = role == "value" and decoding.stores_registers
    # others take what they use of matrices, and of what is stored for them
    follows_shared = soft or not decoding.effects.access
    if stored and decoding.stored_space in (("local", "shared") if follows_shared else ("local",)):
        return None
    nbytes = TYPES[register.type].nbytes
    if stored and decoding.traffic is not None:
        nbytes = min(nbytes, decoding.traffic[2] // len(decoding.registers_of(1)))
    counts = _counting_stores(decoding, register, soft) if stored and decoding.effects.access else None

    # a compiler leaves parts of what it stores unset: these bytes count as unwritten in memory
    partly = stored and not soft and bool(decoding.effects.access)

    def general(window: Window, mask: Mask | None) -> None:
        bad = in_part(window, register, nbytes) if partly else undefined(window, register)
        if bad is not None and mask is not None:
            bad = bad & mask
        if bad is not None and counts is not None and bad.any():
            bad = bad & counts(window)
        decided = _any_of([undefined(window, one) for one in under]) if bad is not None and bad.any() else None
        if bad is not None and decided is not None:
            bad = bad & ~decided
        if bad is not None and bad.any():
            all_of_it = undefined(window, register)
            named = name if all_of_it is not None and (all_of_it & bad).any() else f"a part of {name}"
            window.batch.checks.undefined.used(window, site, named, role, bad, key_of(register))

    return under_guard(decoding, action(general)) if role != "guard" else action(general)


def _counting_stores(decoding: Decoding, register: Register, soft: bool) -> Callable[[Window], Any]:
    """A function for the positions at which storing an undefined value is reported."""
    spared = ("local", "shared") if soft else ("local",)
    generic, whole = decoding.store_space == "generic", whole_of(register)

    def counts(window: Window) -> Any:
        found = np.ones(window.size, bool)
        for part, _, inside in _located(decoding, window, None) if generic else ():
            if part.name in spared:
                found &= ~inside
        if soft:
            bits = window.batch.checks.definedness.flags.get(window, key_of(register))
            copied = np.zeros(window.size, bool) if bits is None else bits == whole
            found &= ~(copied & _has_defined_part(decoding, window))
        return found

    return counts


def _has_defined_part(decoding: Decoding, window: Window) -> Any:
    """Positions at which some value of a store is defined, at least in part."""
    registers = decoding.registers_of(1)
    found = np.full(window.size, any(register is None for register in registers))
    for register in (r for r in registers if r is not None):
        bad = undefined(window, register)
        found |= True if bad is None else ~bad
    return found


def _located(decoding: Decoding, window: Window, mask: Mask | None) -> list[tuple[Any, Array, Mask]]:
    """The locations that a store writes."""
    assert decoding.address_slot is not None
    port, nbytes = window.batch.port, TYPES[decoding.mod("type")].nbytes * len(decoding.registers_of(1))
    addresses = np.broadcast_to(port.addresses(window, decoding.address_slot), window.size)
    offset = np.uint64(decoding.address_offset & (1 << 64) - 1)
    found: list[tuple[Any, Array, Mask]] = port.located(
        decoding.store_space, addresses, window.lane_numbers, offset, nbytes, mask
    )
    return found


def watch_added(decoding: Decoding, registers: list[Register], followed: bool) -> Step | None:
    """A step that reports warps in which an asynchronous product adds to accumulators that are undefined.

    Those that came from memory are `followed` through the product.
    """
    position = decoding.position("scale_d")
    if not registers or position is None:
        return None
    adds, site = decoding.source(position), decoding.site
    keys = Registers(map(key_of, registers))

    def general(window: Window, mask: Mask | None) -> None:
        checks = window.batch.checks
        if not checks.definedness.flags.known(window, keys):
            return
        active = np.broadcast_to(window.rows[adds] != 0, window.size)
        active = active if mask is None else active & mask
        origins = checks.definedness.origins
        watched = [r for r in registers if not (followed and is_followed(origins.get(key_of(r))))]
        rows = ((register, undefined(window, register)) for register in watched if active.any())
        found = [(register, row & active) for register, row in rows if row is not None]
        found = [(register, bad) for register, bad in found if bad.any()]
        if found:
            (register, bad), others = found[0], len(found) - 1
            name = register.name + (f" (and {others} more)" if others else "")
            checks.undefined.used(window, site, name, "addend", bad, key_of(register))

    return under_guard(decoding, action(general))


def unwrite_parts(decoding: Decoding, registers: list[Register]) -> Step | None:
    """A step after a warp's store of matrices: shared memory that gets undefined bytes counts as unwritten."""
    parts, elements = decoding.stored_parts, decoding.registers_of(1)
    if parts is None or decoding.stored_space not in ("shared", "generic"):
        return None
    keys, site = Registers(map(key_of, registers)), decoding.site

    def general(window: Window, mask: Mask | None) -> None:
        checks, port = window.batch.checks, window.batch.port
        if not checks.definedness.flags.known(window, keys):
            return
        rows = [None if one is None else _stored_bits(window, one, mask) for one in elements]
        for part in parts(window) if any(row is not None for row in rows) else ():
            row, register = rows[part.register], elements[part.register]
            if row is None or register is None:
                continue
            bad = row[:, None] >> np.arange(part.first, part.first + part.nbytes, dtype=np.uint32) & np.uint32(1) != 0
            lanes, nothing_more = window.lane_numbers, np.uint64(0)
            for space, offsets, inside in port.located(
                decoding.stored_space, part.addresses, lanes, nothing_more, part.nbytes, mask
            ):
                spots = (offsets[:, None] + np.arange(part.nbytes))[bad & inside[:, None]]
                if space.name == "shared" and spots.size:
                    checks.undefined.copied(spots, checks.definedness.origin_of(register, key_of(register), site), site)

    return under_guard(decoding, action(general))


def unwrite(decoding: Decoding, registers: list[Register], soft: bool) -> Step | None:
    """A step after a store: memory that gets undefined bytes counts as unwritten.

    In global memory this holds only for copies of memory, and if the store has a defined part: the padding of a struct.
    Other stores of undefined values to global memory are reported.
    """
    elements = [(n, r) for n, r in enumerate(decoding.registers_of(1)) if r is not None and r in registers]
    reached = ("local", "shared", "global") if decoding.store_space == "generic" else (decoding.store_space,)
    spaces = [space for space in reached if soft or space == "local"]
    if not elements or not spaces:
        return None
    keys = Registers(key_of(register) for _, register in elements)

    def general(window: Window, mask: Mask | None) -> None:
        checks = window.batch.checks
        if not checks.definedness.flags.known(window, keys):
            return
        bits = [(index, register, _stored_bits(window, register, mask)) for index, register in elements]
        if not any(found is not None for _, _, found in bits):
            return
        for part, offsets, inside in _located(decoding, window, mask):
            if part.name not in spaces:
                continue
            if part.name == "global":
                inside &= _has_defined_part(decoding, window)
            for index, register, found in bits:
                if found is not None:
                    here = np.where(inside, found, 0)
                    checks.undefined.stored(window, decoding, register, part, offsets, here, index)

    return under_guard(decoding, action(general))


def _stored_bits(window: Window, register: Register, mask: Mask | None) -> Array | None:
    """The undefined bits of a stored register, None if all of it is defined."""
    bits: Array | None = window.batch.checks.definedness.flags.get(window, key_of(register))
    if bits is not None and mask is not None:
        bits = np.where(mask, bits, 0)
    return bits if bits is not None and bits.any() else None


def hand_on(decoding: Decoding, register: Register, caught: bool) -> Step:
    """Report lanes that pass an undefined value from memory to other lanes, or into a product.

    Of what is shuffled or reduced, and of factors of products, only contested values are reported here: others are
    tracked in the lanes that receive them. Factors of asynchronous products are, if the product is `caught`.
    """
    site = decoding.site
    exchanges = decoding.effects.law in ("shuffle", "reduction")
    exchanged = [decoding.register_at(n) for n in range(1, 3)] if exchanges else []
    # one register may be the value and the lane number, or the mask
    followed = exchanged.count(register) == 1 and exchanged[0] == register
    followed |= register in decoding.factors() and (caught or decoding.effects.law == "accumulate")

    def general(window: Window, mask: Mask | None) -> None:
        bad = undefined(window, register)
        if bad is not None and mask is not None:
            bad = bad & mask
        if bad is not None and bad.any():
            window.batch.checks.undefined.handed_on(window, site, bad, key_of(register), followed)

    return under_guard(decoding, action(general))


def mark(
    decoding: Decoding, passes: bool, targets: list[Register], joins: bool, under: tuple[Register, ...] = ()
) -> Step:
    """A step before an instruction: results are undefined if a source is, if the instruction `passes` that on.

    Copies and selections keep single bytes. With `joins`, values packed from parts are undefined only if every part is;
    packed conversions always. They are undefined, too, if a predicate is that decides whether the instruction runs: its
    guard (then also in lanes that do not run it), or one of those in `under`.
    """
    factors = decoding.factors() if joins and decoding.effects.law == "accumulate" else ()
    sources = list(dict.fromkeys((*decoding.passing(), *factors))) if passes else []
    source_keys, target_keys = tuple(map(key_of, (*sources, *under))), tuple(map(key_of, targets))
    keys = Registers(source_keys + target_keys)
    # made on first use, which most never have
    made: Callable[[], dict[Key, Bits]] = cache(lambda: _results(decoding, sources, joins) if passes else {})
    cancels = cache(lambda: cancelling(decoding) if passes else {})
    own = next((register for register in sources if decoding.role_of(register) == "guard"), None)
    runs, multiplied = _running(decoding), decoding.effects.law == "accumulate"

    def general(window: Window, mask: Mask | None) -> None:
        checks = window.batch.checks
        if not checks.definedness.flags.known(window, keys):
            return
        results, running = made(), runs(window, mask)
        # compute all results first, since a target may be a source
        mine = None if own is None else undefined(window, own)
        unsure = _any_of([*(undefined(window, one) for one in under), mine])
        computed = [results[key](window) if key in results else None for key in target_keys]
        found = [cancels().get(key, unknown)(window, bits) for key, bits in zip(target_keys, computed, strict=True)]
        # the guard may hold or not: what it leaves as it was is undefined, too
        reached = running if running is None or mine is None else running | (mine if mask is None else mine & mask)
        for target, (bits, forms) in zip(targets, found, strict=True):
            checks.definedness.flags.put(window, key_of(target), bits, reached, forms)
            if unsure is not None:
                lose(window, target, unsure, reached)
        if joins and source_keys and (unsure is not None or any(bits is not None and bits.any() for bits, _ in found)):
            checks.definedness.pass_on(window, source_keys, target_keys, multiplied)

    return replace(action(general), marks=Marks(source_keys, target_keys, decoding.guard() is not None))


def watch_unset(decoding: Decoding, register: Register) -> Step:
    """A step that reports an address of which an undefined part is no fault, if it does not come from memory."""
    site, key = decoding.site, key_of(register)

    def general(window: Window, mask: Mask | None) -> None:
        bad, checks = undefined(window, register), window.batch.checks
        if bad is not None and mask is not None:
            bad = bad & mask
        if bad is not None and bad.any() and not is_followed(checks.definedness.origins.get(key)):
            checks.undefined.used(window, site, register.name, "address", bad, key)

    return under_guard(decoding, action(general))


def mark_doubtful(decoding: Decoding, doubts: list[Register]) -> Step:
    """A step after an instruction: its results are undefined where one of the `doubts` is."""
    keys, targets = tuple(map(key_of, doubts)), tuple(map(key_of, decoding.writes))
    known = Registers(keys)

    def general(window: Window, mask: Mask | None) -> None:
        definedness = window.batch.checks.definedness
        if not definedness.flags.known(window, known):
            return
        unsure = _any_of([undefined(window, register) for register in doubts])
        for target, key in zip(decoding.writes, targets, strict=True) if unsure is not None else ():
            before = definedness.flags.get(window, key)
            lose(window, target, unsure, mask)
            if before is None or not before.any():
                definedness.pass_on(window, keys, (key,))

    return under_guard(decoding, action(general))


def _running(decoding: Decoding) -> Callable[[Window, Mask | None], Mask | None]:
    """A function for the active lanes that run an instruction; None if all do."""
    guard = decoding.guard()
    if guard is None:
        return lambda window, mask: mask
    slot, negated = guard

    def running(window: Window, mask: Mask | None) -> Mask:
        holds: Mask = ~window.rows[slot] if negated else window.rows[slot]
        return holds if mask is None else holds & mask

    return running


def _results(decoding: Decoding, sources: list[Register], joins: bool) -> dict[Key, Bits]:
    """How the bits of each result come from those of the sources."""
    copied = product(decoding) if decoding.effects.law == "accumulate" else copies(decoding)
    if copied is not None:
        return copied
    computed = _computed(decoding, sources, joins)
    return {key_of(target): as_whole(computed, target) for target in decoding.writes}


def _computed(decoding: Decoding, sources: list[Register], joins: bool) -> Callable[[Window], Any]:
    """Positions at which an instruction's result is undefined; None if there are none."""
    parts, decided = _parts(decoding, joins), _deciding_operands(decoding)
    certain = sources if parts is None else _always_counting(decoding)
    # undefined only if every part is
    joined = [part for part in parts or () if part is not None]
    if parts is not None and len(joined) < len(parts):
        joined = []
    if not joined and not certain:
        return lambda window: None

    def computed(window: Window) -> Any:
        found = _any_of([undefined(window, source) for source in certain])
        if joined:
            found = _any_of([found, _all_of([undefined(window, part) for part in joined])])
        for decides in decided if found is not None else ():
            found = found & ~decides(window)
        return found

    return computed


def _any_of(rows: list[Any]) -> Any:
    found = None
    for row in rows:
        if row is not None:
            found = row if found is None else found | row
    return found


def _all_of(rows: list[Any]) -> Any:
    if any(row is None for row in rows):
        return None
    return np.logical_and.reduce(rows)


def _parts(decoding: Decoding, joins: bool) -> list[Register | None] | None:
    """The parts a value is packed from, None for those that are no registers; None if it is not packed."""
    effects = decoding.effects
    if effects.law == "convert and pack":
        # random bits for rounding are not a part
        last = len(decoding.operands) - (decoding.mod("rnd") == "rs")
        return [part for index in range(1, last) for part in decoding.registers_of(index)]
    # a predicate is a single bit, of which nothing can be packed
    if not joins or not effects.parts or (decoding.has("type") and decoding.mod("type") == "pred"):
        return None
    positions = (decoding.position(name) for name in effects.parts)
    return [decoding.register_at(position) for position in positions if position is not None]


def _always_counting(decoding: Decoding) -> list[Register]:
    """The operands of a lop3 of which every bit changes the result, whatever the others are, as in an exclusive or."""
    lut = decoding.constant_of(4) if "c" in decoding.effects.parts else None
    if lut is None:
        return []
    found, operands = [], [decoding.register_at(index) for index in (1, 2, 3)]
    for register, index_bit in zip(operands, (4, 2, 1), strict=True):
        pairs = [(bits, bits | index_bit) for bits in range(8) if not bits & index_bit]
        if (
            register is not None
            and operands.count(register) == 1
            and all((lut >> one ^ lut >> other) & 1 for one, other in pairs)
        ):
            found.append(register)
    return found


def _deciding_operands(decoding: Decoding) -> list[Callable[[Window], Any]]:
    """For `and`, `or` and the boolean of a comparison: lanes in which one defined operand determines the result."""
    compares = decoding.effects.law == "compare"
    operation = decoding.mod("bool") if compares else decoding.effects.law
    if operation == "xor" and len({str(operand) for operand in decoding.operands[1:3]}) == 1:
        return [lambda window: np.ones(window.size, bool)]
    if operation not in ("and", "or"):
        return []
    operands = decoding.operands[3:4] if compares else decoding.operands[1:3]
    return [made for operand in operands if (made := _decides(decoding, operand, operation == "or"))]


def _decides(decoding: Decoding, operand: Operand, when: bool) -> Callable[[Window], Any] | None:
    """Lanes in which an operand is defined, and non-zero (`when`) or zero."""
    if isinstance(operand, Integer):
        return lambda window: np.full(window.size, bool(operand.value) == when)
    name = operand.operand if isinstance(operand, Not) else operand
    register = decoding.scope.register(name.text) if isinstance(name, Name) else None
    if register is None:
        return None
    slot = decoding.table.number(RegisterSlot(register.bank, register.row))
    wanted = when != isinstance(operand, Not)

    def decides(window: Window) -> Any:
        found = (np.broadcast_to(window.rows[slot], window.size) != 0) == wanted
        bad = undefined(window, register)
        return found if bad is None else found & ~bad

    return decides


def under_guard(decoding: Decoding, step: Step) -> Step:
    """A step for the lanes that run an instruction."""
    guard = decoding.guard()
    return step if guard is None else guarded(step, *guard, own=False)
