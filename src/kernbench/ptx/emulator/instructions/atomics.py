"""Atomics and reductions.

Whole words in one compiled pass, everything else in rounds of lanes with distinct addresses.
"""

from collections.abc import Callable, Mapping

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.instructions.memory import access_report, space_label, space_name
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.memory.access import UNSEEN
from kernbench.ptx.emulator.memory.atomics import OPERATIONS
from kernbench.ptx.emulator.memory.cells import BLIND_UPDATE, UPDATE
from kernbench.ptx.emulator.program.access_order import SCOPES, Order
from kernbench.ptx.emulator.program.operands import AddressSlot, Decoding, Row
from kernbench.ptx.emulator.program.steps import Step, action
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.numerics import operation
from kernbench.ptx.text.types import TYPES

_WORDS = frozenset(("b16", "b32", "b64", "u32", "s32", "u64", "s64", "f32", "f64"))
_ACQUIRES, _RELEASES = frozenset(("acquire", "acq_rel")), frozenset(("release", "acq_rel"))

# old values, sources and results, each a list of rows
Update = Callable[[list[Array], list[Array], list[Array]], None]


def atomic(d: Decoding) -> Step:
    """atom and red."""
    index = d.position("a")
    assert index is not None
    address = d.address(index)
    sources = _operands(d, index + 1)
    others = _operands(d, index + 2) if d.mod("op") == "cas" else sources
    targets = d.targets(0) if d.instruction.opcode == "atom" else []
    if d.mod("type") == "b128":
        targets = d.halves(targets[0])
    d.traffic = (space_label(d, address), "atomic", TYPES[d.mod("type")].nbytes * max(1, len(d.writes) or 1))
    d.store_space = space_name(d, address)
    d.report = access_report(d, address)
    d.order = _order(d)
    if d.mod("type") in _WORDS and not d.has("vec"):
        return _words(d, address, targets, sources[0], others[0])
    return _rounds(d, address, targets, sources, others)


def _order(d: Decoding) -> Order:
    """The memory order of an atomic; a reduction returns nothing, so it does not read."""
    sem, reads = d.mod("sem"), d.instruction.opcode == "atom"
    return Order(SCOPES[d.mod("scope")], sem in _ACQUIRES, sem in _RELEASES, reads=reads, writes=True, updates=True)


def _operands(d: Decoding, index: int) -> list[int]:
    slots = [d.register_slot(slot) for slot in d.sources(index)]
    return d.halves(slots[0]) if d.mod("type") == "b128" else slots


def _code(d: Decoding) -> int:
    op, kind = d.mod("op"), d.mod("type")
    if op in ("min", "max"):
        return OPERATIONS[f"{op}.{kind[0]}"]
    return OPERATIONS["add.f" if op == "add" and kind[0] == "f" else op]


def _words(d: Decoding, address: AddressSlot, targets: list[int], source: int, other: int) -> Step:
    """A step of one compiled pass over the lanes."""
    bank, (b, c) = d.bank_rows([source, other])
    target = d.bank_rows(targets)[1][0] if targets else -1
    rows, code = (target, b, c), _code(d)
    space, slot, offset, site = d.store_space, address.slot, np.uint64(address.offset), d.site
    order = d.order
    d.row = Row(f"update.{space}", (*targets[:1], source, other, slot), (code, order.scope), address.offset)

    def general(window: Window, mask: Mask | None) -> None:
        batch = window.batch
        batch.checks.synchronise(space, window, slot, offset, mask, order, site)
        addresses = batch.port.addresses(window, slot)
        kind = BLIND_UPDATE if site.number in batch.program.blind else UPDATE
        lanes, scope = window.lane_numbers, order.scope
        batch.port.atomic(space, addresses, lanes, offset, bank, rows, code, mask, site, scope, kind)
        batch.checks.synchronised()

    return action(general)


def _rounds(d: Decoding, address: AddressSlot, targets: list[int], sources: list[int], others: list[int]) -> Step:
    """A step in which lanes of one address take turns; in each round all addresses differ."""
    bank, source_rows = d.bank_rows(sources)
    other_rows = d.bank_rows(others)[1]
    old_rows = np.array(d.bank_rows(targets or [d.temporary(bank) for _ in sources])[1])
    new_rows = np.array(d.bank_rows([d.temporary(bank) for _ in sources])[1])
    update, order = _update(d), d.order
    given = (*targets, *sources, address.slot)
    counts = (len(sources), int(bool(targets)), order.scope)
    d.row = Row(f"vector update.{d.store_space}", given, counts, address.offset)
    space, slot, offset, site = d.store_space, address.slot, np.uint64(address.offset), d.site

    def general(window: Window, mask: Mask | None) -> None:
        batch = window.batch
        batch.checks.synchronise(space, window, slot, offset, mask, order, site)
        addresses = batch.port.addresses(window, slot).copy()
        registers, lanes = batch.banks[bank], window.lane_numbers
        kind, seen = (BLIND_UPDATE, UNSEEN) if site.number in batch.program.blind else (UPDATE, order.scope)
        for turn in _turns(addresses, mask):
            here = lanes[turn]
            given = [registers[row, here] for row in (*source_rows, *other_rows)]
            batch.port.load(space, addresses, lanes, offset, bank, old_rows, turn, site, seen)
            results = [np.empty(len(here), registers.dtype) for _ in new_rows]
            old = [registers[row, here] for row in old_rows]
            update(old, given, results)
            for row, result in zip(new_rows, results, strict=True):
                registers[row, here] = result
            changing = any((one != two).any() for one, two in zip(old, results, strict=True))
            batch.port.store(space, addresses, lanes, offset, bank, new_rows, turn, site, order.scope, kind, changing)
        batch.checks.synchronised()

    return action(general)


def _turns(addresses: Array, mask: Mask | None) -> list[Mask]:
    """Masks of lanes in order: the first lane of each address, then the second of each, and so on."""
    active = np.arange(len(addresses)) if mask is None else np.flatnonzero(mask)
    order = np.argsort(addresses[active], kind="stable")
    ordered = addresses[active][order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, np.int64)
    turn = np.arange(len(ordered)) - np.repeat(begins, np.diff(np.r_[begins, len(ordered)]))
    found = []
    for number in range(int(turn.max(initial=-1)) + 1):
        chosen = np.zeros(len(addresses), bool)
        chosen[active[order[turn == number]]] = True
        found.append(chosen)
    return found


def _update(d: Decoding) -> Update:
    op, kind = d.mod("op"), d.mod("type")
    if kind == "b128":
        return _exchange if op == "exch" else _compare_and_swap
    # vectors of f32 are in global memory, where additions flush subnormal numbers
    function = operation(f"{op}.float", {"type": kind} | ({"ftz": "ftz"} if kind == "f32" else {}))

    def each(old: list[Array], given: list[Array], results: list[Array]) -> None:
        for before, value, result in zip(old, given, results, strict=False):
            function(before, value, result)

    return each


def _exchange(old: list[Array], given: list[Array], results: list[Array]) -> None:
    for value, result in zip(given, results, strict=False):
        result[...] = value


def _compare_and_swap(old: list[Array], given: list[Array], results: list[Array]) -> None:
    same = (old[0] == given[0]) & (old[1] == given[1])
    for before, value, result in zip(old, given[2:], results, strict=True):
        result[...] = np.where(same, value, before)


MEANINGS: Mapping[str, Callable[[Decoding], Step]] = {"atom": atomic, "red": atomic}
