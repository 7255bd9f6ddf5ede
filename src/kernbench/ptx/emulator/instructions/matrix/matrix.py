"""Matrix fragments: loads and stores of 8x8 matrices by a warp, transposition, and multiply-accumulate."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.instructions.matrix.row_kernels import are_plain, load_rows, note_rows
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.memory.access import new_report
from kernbench.ptx.emulator.memory.arena import SHARED_BASE
from kernbench.ptx.emulator.memory.port import space_of
from kernbench.ptx.emulator.program.operands import AddressSlot, Decoding, Row, StoredPart
from kernbench.ptx.emulator.program.reports import Report
from kernbench.ptx.emulator.program.steps import Step, action
from kernbench.ptx.emulator.units.batch import Window

_LANE = np.arange(WARP)
# rows of a matrix that takes one register of each lane, and bytes per row
_ROWS, _ROW_BYTES = 8, 16
# never written, since the entered reads have no faults
_NO_REPORT = new_report()
_EVERYWHERE = (1 << 64) - 1


def _from_lanes(row: Array, lanes: Array) -> Array:
    """For each position, the value of another lane of its warp."""
    return np.ascontiguousarray(row.reshape(-1, WARP)[:, lanes]).reshape(-1)


def _tile(values: Array, size: int) -> Array:
    return np.tile(values, size // WARP)


def whole_warps(window: Window, mask: Mask | None, site: Any) -> None:
    """Report a matrix instruction that is not run by all lanes of a warp."""
    if mask is not None:
        window.batch.checks.whole_warps(window, mask, site)


def _moves(count: int, transposed: bool) -> list[tuple[int, Array, Array]]:
    """For each 32-bit register (each half, if transposed): register, lane with the row's address, offset."""
    moves = []
    for matrix in range(count):
        if not transposed:
            moves.append((matrix, 8 * matrix + _LANE // 4, 4 * (_LANE % 4)))
            continue
        for half in (0, 1):
            moves.append((matrix, 8 * matrix + 2 * (_LANE % 4) + half, 2 * (_LANE // 4)))
    return moves


def _located(d: Decoding, index: int) -> tuple[AddressSlot, str]:
    """The address of rows, and their space; without a space modifier it is generic, and must be in shared memory."""
    address, space = d.address(index), d.mod("space")
    if not address.space and not space:
        address = replace(address, offset=(address.offset - SHARED_BASE) & _EVERYWHERE)
    return address, space_of(address.space or space or "shared")


def _rows_report(d: Decoding, address: AddressSlot, space: str, registers: int) -> Report:
    """The report of matrices in memory: 16-byte rows, whose addresses the first lanes give."""
    return Report(d.site, d.effects.event, address.slot, address.offset, space, _ROW_BYTES, rows=_ROWS * registers)


# a small cache: an entry has sixteen bytes for each move and lane of its window
@lru_cache(1 << 4)
def _sources(count: int, transposed: bool, size: int) -> tuple[Array, Array]:
    """For all moves, the position that gives each position's row address, and the offset there: [moves, size]."""
    moves = _moves(count, transposed)
    warps = np.repeat(np.arange(0, size, WARP), WARP)
    lanes = np.stack([_tile(lanes, size) + warps for _, lanes, _ in moves])
    return lanes, np.stack([_tile(offsets.astype(np.uint64), size) for _, _, offsets in moves])


def moved_rows(count: int, transposed: bool, base: Array) -> Iterator[tuple[int, int, Array]]:
    """For each 32-bit register (each half, if transposed): register, half, and the address of each position's part."""
    givers, offsets = _sources(count, transposed, base.size)
    seen = -1
    for (number, _, _), addresses in zip(_moves(count, transposed), base[givers] + offsets, strict=True):
        yield number, int(number == seen), addresses
        seen = number


def has_plain_rows(d: Decoding) -> bool:
    """Whether rows have eight elements of 16 bits."""
    return d.mod("shape") == "m8n8" and d.mod("type") == "b16"


# bits of an element in memory, by modifier
_NARROW = {"": 8, "b6x16_p32": 6, "b4x16_p64": 4}


def load_narrow(d: Decoding) -> Step:
    """ldmatrix of 16 elements a row, each a byte of a register: as they are, or rows across lanes (.trans).

    Lane 8j + i (16j + i for sixteen rows) gives the address of row i of matrix j. Elements of 6 or 4 bits fill the
    first 12 or 8 of a row's 16 bytes, and are returned in the lower bits of bytes.
    """
    (address, space), targets = _located(d, 1), d.targets(0)
    d.traffic = ("shared", "read", 4 * len(targets))
    d.report = _rows_report(d, address, space, len(targets))
    bits, transposed, site = _NARROW[d.mod("stype")], d.has("trans"), d.site
    scratch = d.temporary("uint8")
    bank, rows = d.bank_rows([scratch])
    row = np.array(rows, np.int64)

    def octet(window: Window, mask: Mask | None, addresses: Array) -> Array:
        window.batch.port.load(space, addresses, window.lane_numbers, np.uint64(0), bank, row, mask, site)
        found: Array = window.rows[scratch].astype(np.uint32)
        return found

    def element(window: Window, mask: Mask | None, base: Array, lanes: Array, column: Array) -> Array:
        """The element in a column of the rows whose addresses some lanes give."""
        first = column * bits
        addresses = _from_lanes(base, lanes) + _tile((first // 8).astype(np.uint64), window.size)
        value = octet(window, mask, addresses)
        if 8 % bits:
            inside = _tile(((first % 8 + bits - 1) // 8).astype(np.uint64), window.size)
            value = value | octet(window, mask, addresses + inside) << np.uint32(8)
        return (value >> _tile((first % 8).astype(np.uint32), window.size)) & np.uint32((1 << bits) - 1)

    def general(window: Window, mask: Mask | None) -> None:
        whole_warps(window, mask, site)
        base = window.batch.port.addresses(window, address.slot) + np.uint64(address.offset)
        results = []
        for number in range(len(targets)):
            value = np.zeros(window.size, np.uint32)
            for part in range(4):
                down, across = 4 * (_LANE % 4) + part, _LANE // 4
                lanes = 16 * (number // 2) + down if transposed else 8 * number + across
                column = across + 8 * (number % 2) if transposed else down
                value |= element(window, mask, base, lanes, column) << np.uint32(8 * part)
            results.append(value)
        for target, value in zip(targets, results, strict=True):
            window.put(target, value, mask)

    return action(general)


def _are_loaded(window: Window, base: Array, bank: str, targets: Array, transposed: bool, site: Any) -> bool:
    """The fast path for loads of matrices from shared memory without faults; False if the slow path is needed."""
    reads = window.batch.port.shared_reads(base, window.lane_numbers, site)
    if reads is None:
        return False
    part, entered = reads
    located = (base, part.origins, np.uint64(part.size), window.lane_numbers)
    if entered is not None:
        (shadow, number, _), filled_by = entered
        if not are_plain(part.state[4], filled_by, located, len(targets), transposed, shadow):
            return False
        note_rows(located, len(targets), transposed, shadow, number, _NO_REPORT)
    return bool(load_rows(part.words[4], located, window.batch.banks[bank], targets, transposed))


def load_matrix(d: Decoding) -> Step:
    """ldmatrix: lane 8j + i gives the address of row i of matrix j; each lane receives two elements of a matrix."""
    if not has_plain_rows(d):
        return load_narrow(d)
    index = d.position("p")
    assert index is not None
    (address, space), targets = _located(d, index), d.targets(0)
    d.traffic = ("shared", "read", 4 * len(targets))
    d.report = _rows_report(d, address, space, len(targets))
    transposed, site, count = d.has("trans"), d.site, len(targets)
    scratch = d.temporary("uint16" if transposed else "uint32")
    bank, rows = d.bank_rows([scratch])
    row = np.array(rows, np.int64)
    words, target_rows = d.bank_rows(targets)
    to = np.array(target_rows, np.int64)
    plain = space == "shared" and all(d.table.slots[slot].dtype == "uint32" for slot in targets)
    if plain:
        d.row = Row("load matrices", (*targets, address.slot), (count, int(transposed)), address.offset)

    def general(window: Window, mask: Mask | None) -> None:
        whole_warps(window, mask, site)
        port = window.batch.port
        base = port.addresses(window, address.slot) + np.uint64(address.offset)
        whole = plain and mask is None and window.batch.launch.fast.matrix_rows
        if whole and _are_loaded(window, base, words, to, transposed, site):
            return
        results: dict[int, Array] = {}
        with window.batch.checks.definedness.gathered(site, 4 * count, window.size) as lost:
            for number, half, addresses in moved_rows(count, transposed, base):
                port.load(space, addresses, window.lane_numbers, np.uint64(0), bank, row, mask, site)
                lost(4 * number + 2 * half)
                found = window.rows[scratch].astype(np.uint32)
                results[number] = results[number] | found << np.uint32(16) if half else found
            for number, value in results.items():
                window.put(targets[number], value, mask)

    return action(general)


def store_narrow(d: Decoding) -> Step:
    """stmatrix of 16 x 8 bytes, stored as eight rows of sixteen: lane 8j + i gives the address of row i.

    Byte v of lane t belongs to row 2 (t % 4) + v % 2, column t // 4 + 8 (v // 2).
    """
    (address, space), sources = _located(d, 0), [d.register_slot(slot) for slot in d.sources(1)]
    d.traffic = ("shared", "written", 4 * len(sources))
    d.report = _rows_report(d, address, space, len(sources))
    site, scratch = d.site, d.temporary("uint8")
    bank, rows = d.bank_rows([scratch])
    row = np.array(rows, np.int64)

    def parts(window: Window) -> Iterator[StoredPart]:
        base = window.batch.port.addresses(window, address.slot) + np.uint64(address.offset)
        for number in range(len(sources)):
            for part in range(4):
                lanes, columns = 8 * number + 2 * (_LANE % 4) + part % 2, _LANE // 4 + 8 * (part // 2)
                addresses = _from_lanes(base, lanes) + _tile(columns.astype(np.uint64), window.size)
                yield StoredPart(number, part, 1, addresses)

    def general(window: Window, mask: Mask | None) -> None:
        whole_warps(window, mask, site)
        for part in parts(window):
            value = window.rows[sources[part.register]] >> np.uint32(8 * part.first)
            window.put(scratch, value.astype(np.uint8), mask)
            window.batch.port.store(space, part.addresses, window.lane_numbers, np.uint64(0), bank, row, mask, site)

    d.stored_parts = parts

    return action(general)


def store_matrix(d: Decoding) -> Step:
    """stmatrix: the inverse of ldmatrix."""
    if not has_plain_rows(d):
        return store_narrow(d)
    (address, space), sources = _located(d, 0), [d.register_slot(slot) for slot in d.sources(1)]
    d.traffic = ("shared", "written", 4 * len(sources))
    d.report = _rows_report(d, address, space, len(sources))
    transposed, site, count = d.has("trans"), d.site, len(sources)
    # words are stored from their registers, halves from a temporary register
    stored = [d.temporary("uint16")] if transposed else sources
    bank, rows = d.bank_rows(stored)
    row_of = [np.array([row], np.int64) for row in rows]
    nbytes = 2 if transposed else 4
    if space == "shared" and all(d.table.slots[slot].dtype == "uint32" for slot in sources):
        d.row = Row("store matrices", (*sources, address.slot), (count, int(transposed)), address.offset)

    def parts(window: Window) -> Iterator[StoredPart]:
        base = window.batch.port.addresses(window, address.slot) + np.uint64(address.offset)
        for number, half, addresses in moved_rows(count, transposed, base):
            yield StoredPart(number, 2 * half, nbytes, addresses)

    def general(window: Window, mask: Mask | None) -> None:
        whole_warps(window, mask, site)
        for part in parts(window):
            if transposed:
                value = window.rows[sources[part.register]] >> np.uint32(8 * part.first)
                window.put(stored[0], value.astype(np.uint16), mask)
            row = row_of[0 if transposed else part.register]
            window.batch.port.store(space, part.addresses, window.lane_numbers, np.uint64(0), bank, row, mask, site)

    d.stored_parts = parts

    return action(general)


def move_matrix(d: Decoding) -> Step:
    """movmatrix: an 8x8 matrix of 16-bit elements, transposed across the warp."""
    source, target, site = d.row_slot(d.source(1)), d.target(0), d.site

    def general(window: Window, mask: Mask | None) -> None:
        whole_warps(window, mask, site)
        halves = np.ascontiguousarray(window.rows[source]).view(np.uint16).reshape(-1, 8, 8)
        window.put(target, np.ascontiguousarray(halves.transpose(0, 2, 1)).reshape(-1).view(np.uint32), mask)

    return action(general)


MEANINGS: Mapping[str, Callable[[Decoding], Step]] = {
    "ldmatrix": load_matrix,
    "stmatrix": store_matrix,
    "movmatrix": move_matrix,
}
