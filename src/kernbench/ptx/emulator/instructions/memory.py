"""Loads, stores and hints."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.slots import RegisterSlot, SymbolSlot
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE
from kernbench.ptx.emulator.memory.port import space_of
from kernbench.ptx.emulator.program.access_order import SCOPES, WEAK, Order
from kernbench.ptx.emulator.program.facts import FromFacts
from kernbench.ptx.emulator.program.operands import AddressSlot, Decoding, Row
from kernbench.ptx.emulator.program.reports import Report
from kernbench.ptx.emulator.program.steps import Loaded, Step, action, compute, copy, nothing
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.text.module import Address, Name
from kernbench.ptx.text.types import TYPES

# maximal bytes per lane of a load in a chain
_WIDEST = 16
_STRONG = frozenset(("volatile", "relaxed", "acquire", "release"))


def space_name(d: Decoding, address: AddressSlot) -> str:
    """The memory of an access: from the variable's space, or the modifier; inside a function `.param` is its own."""
    space = address.space or d.mod("space")
    return space_of("param::func" if space == "param" and not d.entry else space)


def load(d: Decoding) -> "Step | FromFacts":
    """ld and ldu; a CAS-validated load is as strong as the swap."""
    index = d.position("a")
    assert index is not None
    address = d.address(index)
    targets = d.targets(0)
    d.traffic = (space_label(d, address), "read", TYPES[d.mod("type")].nbytes * len(targets))
    if d.mod("type") == "b128":
        targets = d.halves(targets[0])
    if address.space == "param":
        d.parameter = address.name
        return _parameter(d, address, targets, _outside(d, index))
    if d.entry and not address.space and d.mod("space") in ("param", "param::entry"):
        address = _of_parameters(d, address)
    d.report = access_report(d, address)
    bank, rows = d.bank_rows(targets)
    d.order, number = _order(d, True), d.site.number
    d.row = Row(f"load.{space_name(d, address)}", (*targets, address.slot), (), address.offset)
    return FromFacts(
        lambda facts: _access("load", d, address, bank, rows, facts.validated.get(number, d.order), targets)
    )


def _of_parameters(d: Decoding, address: AddressSlot) -> AddressSlot:
    """A register that points into the kernel's parameters, restored if only its lower 32 bits were kept."""
    whole = d.temporary("uint64")
    base = d.table.constant(GLOBAL_BASE, "uint64")
    d.before.append(compute(np.bitwise_or, (address.slot, base), (whole,)))
    return AddressSlot(whole, address.offset, "", address.name)


def store(d: Decoding) -> Step:
    """st."""
    index = d.position("a")
    assert index is not None
    address = d.address(index)
    sources = d.sources(1)
    d.traffic = (space_label(d, address), "written", TYPES[d.mod("type")].nbytes * len(sources))
    if d.mod("type") == "b128":
        sources = d.halves(sources[0])
    d.store_space = space_name(d, address)
    d.report = access_report(d, address)
    slots = [d.register_slot(source) for source in sources]
    bank, rows = d.bank_rows(slots)
    d.order = _order(d, False)
    d.row = Row(f"store.{d.store_space}", (*slots, address.slot), (), address.offset)
    return _access("store", d, address, bank, rows, d.order)


def access_report(d: Decoding, address: AddressSlot) -> Report | None:
    """The report of an access; None for values of calls and kernel parameters, which are in registers and constants."""
    if d.mod("space").startswith("param"):
        return None
    nbytes = d.traffic[2] if d.traffic else 0
    space = "const" if space_label(d, address) == "const" else space_name(d, address)
    return Report(d.site, d.effects.event, address.slot, address.offset, space, nbytes)


def _access(
    what: str,
    d: Decoding,
    address: AddressSlot,
    bank: str,
    rows: list[int],
    order: Order,
    targets: Sequence[int] = (),
) -> Step:
    space, slot, offset = space_name(d, address), address.slot, np.uint64(address.offset)
    row_numbers = np.array(rows, np.int64)
    site, loads, strong, scope = d.site, what == "load", order.strong, order.scope

    def general(window: Window, mask: Mask | None) -> None:
        batch = window.batch
        port, checks = batch.port, batch.checks
        if strong:
            checks.synchronise(space, window, slot, offset, mask, order, site)
        access = port.load if loads else port.store
        lanes = window.lane_numbers
        try:
            access(space, port.addresses(window, slot), lanes, offset, bank, row_numbers, mask, site, scope)
        finally:
            # a load of an undefined value raises after it is complete
            if strong:
                checks.synchronised()

    loaded = None
    if loads and not strong and space in ("global", "generic"):
        loaded = _loaded(d, address, targets)
    return replace(action(general), loaded=loaded)


def _loaded(d: Decoding, address: AddressSlot, targets: Sequence[int]) -> Loaded | None:
    """The description of a load with a 64-bit address register and one, two or four elements; None for others."""
    spec = d.table.slots[address.slot]
    if not isinstance(spec, RegisterSlot) or spec.bank != "uint64":
        return None
    nbytes = sum(np.dtype(d.table.slots[slot].dtype).itemsize for slot in targets)
    if len(targets) not in (1, 2, 4) or nbytes > _WIDEST:
        return None
    return Loaded(address.slot, address.offset, tuple(targets), nbytes, d.site.number)


def _order(d: Decoding, loads: bool) -> Order:
    sem = d.mod("sem")
    if sem not in _STRONG:
        return WEAK
    return Order(SCOPES[d.mod("scope")], sem == "acquire", sem == "release", reads=loads, writes=not loads)


def space_label(d: Decoding, address: AddressSlot) -> str:
    """The space's name in the metrics."""
    return (address.space or d.mod("space") or "generic").partition("::")[0]


def _outside(d: Decoding, index: int) -> str:
    """What is wrong with a load at a fixed offset of a kernel parameter; "" if it is inside."""
    operand, nbytes = d.instruction.operands[index], d.traffic[2] if d.traffic else 0
    if not isinstance(operand, Address) or not isinstance(operand.base, Name):
        return ""
    size = next((formal.size or 0 for formal in d.code.params if formal.name == operand.base.text), None)
    if size is None or 0 <= operand.offset <= size - nbytes:
        return ""
    return f"reads {nbytes} bytes at offset {operand.offset} of parameter '{operand.base.text}', which has {size} bytes"


def _parameter(d: Decoding, address: AddressSlot, targets: list[int], outside: str) -> Step:
    """A kernel parameter at a fixed offset: one value for all lanes."""
    spec, dtype, site = d.table.slots[address.slot], d.table.slots[targets[0]].dtype, d.site
    assert isinstance(spec, SymbolSlot)
    begins = [spec.offset + number * np.dtype(dtype).itemsize for number in range(len(targets))]
    sources = [d.table.argument(spec.name, begin, dtype) for begin in begins]
    copies = [compute(copy, (source,), (target,)) for source, target in zip(sources, targets, strict=True)]
    if outside:
        # the values exist nevertheless: zeros beyond the last parameter
        d.after[:0] = copies
        return action(lambda window, mask: window.batch.checks.outside_parameter(site, outside))
    d.after[:0] = copies[1:]
    return copies[0]


def hint(d: Decoding) -> Step:
    """Caches have no effect on values."""
    d.row = Row("nothing")
    return nothing()


def create_policy(d: Decoding) -> Step:
    """A cache policy: an opaque number."""
    return d.compute(_zero, [d.table.constant(0, "uint64")], [d.target(0)])


def _zero(source: Any, target: Any) -> None:
    target[...] = 0


MEANINGS: Mapping[str, Callable[[Decoding], "Step | FromFacts"]] = {
    "ld": load,
    "st": store,
    "hint": hint,
    "prefetch.bulk": hint,
    "discard": hint,
    "createpolicy": create_policy,
}
