"""tcgen05: tensor memory and the fifth-generation tensor core."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.matrix.tensor_core import CopyForm, Form, Products
from kernbench.ptx.emulator.asynchronous.matrix.tensor_unit import Access, Refused
from kernbench.ptx.emulator.instructions.matrix.matrix import whole_warps
from kernbench.ptx.emulator.instructions.matrix.wgmma import leaders, pick
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.lanes.operand_rows import OperandRows
from kernbench.ptx.emulator.memory.port import space_of
from kernbench.ptx.emulator.program.operands import AddressSlot, Decoding
from kernbench.ptx.emulator.program.steps import AnyFragment, ControlStep, Step, action
from kernbench.ptx.emulator.units.batch import Batch, Fragment, Scheduler, Window
from kernbench.ptx.numerics.matrix.instruction import DEEP_TARGETS
from kernbench.ptx.numerics.matrix.tensor_memory import registers

# elements that share a scale, by the name of the vector size
_BLOCKS = {"scale_vec::1X": 32, "scale_vec::2X": 32, "scale_vec::4X": 16, "block32": 32, "block16": 16}


def _active(window: Window, mask: Mask | None) -> Array:
    """The positions of all active lanes."""
    return np.arange(window.size) if mask is None else mask.nonzero()[0]


def _address(window: Window, address: AddressSlot, chosen: Array) -> Array:
    """Tensor memory addresses of some positions."""
    # negative offsets have 64 bits, of which the lower ones suffice
    found = pick(window.rows[address.slot], chosen).astype(np.int64) + (address.offset & 0xFFFFFFFF)
    return found & 0xFFFFFFFF


def _granting(d: Decoding) -> Callable[[Fragment, Array], list[int]]:
    """A function that allocates for the warps at some positions, and returns those that must wait."""
    address, columns = d.address(0), d.source(1)
    space = space_of(address.space or d.mod("space"))
    bank, rows = d.bank_rows([d.temporary("uint32")])
    row, site, offset = np.array(rows, np.int64), d.site, np.uint64(address.offset)

    def grant(window: Window, positions: Array, counts: Array) -> list[int]:
        batch, lanes = window.batch, window.lane_numbers[positions]
        asked = zip(lanes.tolist(), counts.tolist(), strict=True)
        first = np.array([batch.tensor.allocate(lane // WARP, count, site) for lane, count in asked])
        given = first >= 0
        if given.any():
            batch.banks[bank][rows[0], lanes[given]] = first[given]
            addresses = batch.port.addresses(window, address.slot)[positions[given]]
            batch.port.store(space, addresses, lanes[given], offset, bank, row, None, site)
            # whole warps run it together
            batch.checks.began(lanes[given] // WARP)
        refused: list[int] = positions[~given].tolist()
        return refused

    def all_of(fragment: Fragment, positions: Array) -> list[int]:
        window = fragment.window
        counts = pick(window.rows[columns], positions)
        batch, warps = window.batch, window.lane_numbers[positions] // WARP
        if batch.launch.fast.allocations_together and batch.tensor.are_plain(warps, counts):
            return grant(window, positions, counts)
        # report the faults of one before the next
        each = [grant(window, positions[i : i + 1], counts[i : i + 1]) for i in range(len(positions))]
        return [position for refused in each for position in refused]

    return all_of


def allocate(d: Decoding) -> ControlStep:
    """tcgen05.alloc: the address of the columns is stored to shared memory; waits while none are free."""
    grant, following, site = _granting(d), d.following, d.site

    def attempt(scheduler: Scheduler, fragment: AnyFragment) -> AnyFragment | None:
        refused = grant(fragment, leaders(fragment.window, fragment.lanes.mask))
        if not refused:
            return fragment.at(following)
        late = np.zeros(fragment.window.size, bool)
        for position in refused:
            late[position // WARP * WARP : (position // WARP + 1) * WARP] = True
        staying, going = scheduler.split(fragment, late)
        assert staying is not None
        waiting = Refused(staying.window.warps, site, lambda: again(scheduler, staying))
        scheduler.batch.tensor.waiting.append(waiting)
        if going is not None:
            scheduler.push(going.at(following))
        return None

    def again(scheduler: Scheduler, fragment: AnyFragment) -> None:
        going = attempt(scheduler, fragment)
        if going is not None:
            scheduler.push(going)

    def run(scheduler: Scheduler, fragment: Fragment) -> AnyFragment | None:
        whole_warps(fragment.window, fragment.lanes.mask, site)
        return attempt(scheduler, fragment)

    return ControlStep(run)


def free(d: Decoding) -> Step:
    """tcgen05.dealloc."""
    address, columns, site = d.source(0, "b32"), d.source(1), d.site

    def perform(window: Window, chosen: Array, warps: Array) -> None:
        addresses = pick(window.rows[address], chosen).astype(np.int64)
        window.batch.tensor.free(warps, addresses, pick(window.rows[columns], chosen).astype(np.int64), site)

    return _by_warps(d, perform)


def _by_warps(d: Decoding, perform: Callable[[Window, Array, Array], None]) -> Step:
    """A step for whole warps: `perform(window, positions of one lane of each, warps)`."""
    site = d.site

    def general(window: Window, mask: Mask | None) -> None:
        whole_warps(window, mask, site)
        chosen, warps = window.leaders(mask)
        if len(chosen):
            perform(window, chosen, warps)

    return action(general)


def relinquish(d: Decoding) -> Step:
    """tcgen05.relinquish_alloc_permit."""
    return _by_warps(d, lambda window, chosen, warps: window.batch.tensor.relinquish(warps))


def load(d: Decoding) -> Step:
    """tcgen05.ld."""
    return _access(d, d.targets(0), 1, "load")


def store(d: Decoding) -> Step:
    """tcgen05.st."""
    index = d.position("r")
    assert index is not None
    return _access(d, [d.register_slot(slot) for slot in d.sources(index)], 0, "store")


def _access(d: Decoding, slots: list[int], index: int, what: str) -> Step:
    address, split = d.address(index), d.position("split")
    half = 0 if split is None else d.constant_of(split) or 0
    rows = np.array(d.bank_rows(slots)[1], np.int64)
    packed = d.has("pack") or d.has("unpack")
    access = Access(registers(d.mod("shape"), int(d.mod("num")[1:]), half, packed), packed, rows, d.site)
    d.traffic = ("tensor", "read" if what == "load" else "written", 4 * len(slots))

    def perform(window: Window, chosen: Array, warps: Array) -> None:
        unit = window.batch.tensor
        (unit.load if what == "load" else unit.store)(access, warps, _address(window, address, chosen))

    return _by_warps(d, perform)


def wait(d: Decoding) -> Step:
    """tcgen05.wait::ld and wait::st."""
    loads = d.mod("op") == "wait::ld"
    return _by_warps(d, lambda window, chosen, warps: window.batch.tensor.wait(warps, loads))


def fence(d: Decoding) -> Step:
    """tcgen05.fence::before_thread_sync and fence::after_thread_sync."""
    before = d.mod("op") == "fence::before_thread_sync"

    def general(window: Window, mask: Mask | None) -> None:
        window.batch.tensor.fence(window.leaders(mask)[1], before)

    return action(general)


def multiply(d: Decoding) -> Step:
    """tcgen05.mma, also with stationary weights (.ws)."""
    form = _form(d)
    target = d.address(0)
    left: Any = d.address(1) if form.from_tensor else d.source(1)
    right, idesc = d.source(2), d.source(_at(d, "idesc"), "u32")
    adds = d.source(_at(d, "enable_d"))
    scales = [d.address(_at(d, name)) for name in ("scale_a", "scale_b")] if form.block else []
    mask_index, scale_index = d.position("lanes"), d.position("scale_d")
    disabled = [] if mask_index is None else d.sources(mask_index)
    shift = 0 if scale_index is None else d.constant_of(scale_index) or 0
    zero = d.position("zero_mask")
    zero_mask = None if zero is None else d.row_slot(d.source(zero))
    # in the order of `Products`, followed by the words that disable lanes
    located = (target, left if form.from_tensor else None, None, None, None, *scales)
    values = (None, left, right, idesc, adds, *scales)
    slots = [(value, 0) if one is None else (one.slot, one.offset) for one, value in zip(located, values, strict=True)]
    operands, count = OperandRows(d.table, slots + [(one, 0) for one in disabled], ()), len(slots)
    # tensor memory addresses have 32 bits
    wide = [i for i, one in enumerate(located) if one is not None and d.table.slots[one.slot].dtype != "uint32"]

    def one(window: Window, chosen: Array) -> None:
        batch = window.batch
        lanes = window.lane_numbers[chosen]
        if zero_mask is not None and pick(window.rows[zero_mask], chosen).any():
            raise d.error(f"{d.instruction.name}: zero-column masks are not emulated, only a mask of 0 is")
        found, _ = operands.take(batch, lanes)
        for i in wide:
            found[i] &= np.uint64(0xFFFFFFFF)
        enabled = _enabled(found[count:]) if disabled else None
        operations = Products(form, lanes // WARP % batch.ctas, found[:count] if disabled else found, shift, enabled)
        if batch.recorder.recording:
            batch.recorder.multiplied(form.site, lanes, *_described(operations))
        batch.tensor.multiply(operations, lanes)

    return _by_threads(one)


def _described(products: Products) -> tuple[Array, Array, Array]:
    """For products: M << 16 | N, the address of D, and the bytes of A and B that each SM reads from shared memory."""
    bits = products.instruction.astype(np.int64)
    m, n = (bits >> 24 & 31) << 4, (bits >> 17 & 63) << 3
    operand = products.operand("a")
    rows = n if products.form.from_tensor else m + n
    nbytes = rows * operand.depth * operand.bits // 8 // products.homes.shape[1]
    return m << 16 | n, products.d.astype(np.int64), nbytes


def _at(d: Decoding, name: str) -> int:
    index = d.position(name)
    assert index is not None, name
    return index


def _form(d: Decoding) -> Form:
    block = 0
    if d.has("block_scale") or "mx" in d.mod("kind"):
        block = _BLOCKS[d.mod("vector", "block16" if d.mod("kind") == "kind::mxf4nvf4" else "block32")]
    return Form(
        d.mod("kind"),
        d.mod("group") == "cta_group::2",
        d.has("ws"),
        d.resolved.rules[1].name == "a",
        d.has("ashift"),
        block,
        d.site,
        d.linker.target in DEEP_TARGETS,
    )


def _enabled(words: Array) -> Array | None:
    """Enabled lanes, from the words that disable lanes; None if none is disabled."""
    if not np.count_nonzero(words):
        return None
    stacked = np.ascontiguousarray(words.T).astype(np.uint32)
    bits = np.unpackbits(stacked.view(np.uint8).reshape(len(stacked), -1), axis=1, bitorder="little")
    enabled: Array = bits == 0
    return enabled


def _by_threads(one: Callable[[Window, Array], None]) -> Step:
    """A step that single threads run: lanes of the same warp run one after the other."""

    def general(window: Window, mask: Mask | None) -> None:
        chosen = window.singles(mask) if window.batch.launch.fast.single_lanes else None
        if chosen is not None:
            if len(chosen):
                one(window, chosen)
            return
        chosen = _active(window, mask)
        if len(chosen) == 0:
            return
        warps = chosen // WARP
        if len(chosen) == 1 or (warps[1:] > warps[:-1]).all():
            one(window, chosen)
            return
        rank = np.arange(len(chosen)) - np.searchsorted(warps, warps)
        for number in range(int(rank.max()) + 1):
            one(window, chosen[rank == number])

    return action(general)


def copy(d: Decoding) -> Step:
    """tcgen05.cp."""
    shape, address, source = d.mod("shape"), d.address(0), d.source(1)
    rows, bits = (int(part) for part in shape.removesuffix("b").split("x"))
    spread = d.mod("multicast") or (shape if shape == "4x256b" else "")
    unpacks = {"b6x16_p32": 6, "b4x16_p64": 4}.get(d.mod("sformat"), 0)
    form, pair = CopyForm(rows, bits // 8, spread, unpacks, d.site), d.mod("group") == "cta_group::2"

    def one(window: Window, chosen: Array) -> None:
        lanes = window.lane_numbers[chosen]
        window.batch.tensor.copy(
            form, pair, lanes, _address(window, address, chosen), pick(window.rows[source], chosen)
        )

    return _by_threads(one)


def shift_down(d: Decoding) -> Step:
    """tcgen05.shift."""
    address, pair, site = d.address(0), d.mod("group") == "cta_group::2", d.site

    def one(window: Window, chosen: Array) -> None:
        window.batch.tensor.shift(pair, window.lane_numbers[chosen], _address(window, address, chosen), site)

    return _by_threads(one)


def commit(d: Decoding) -> Step:
    """tcgen05.commit: arrive on an mbarrier when the thread's operations are complete.

    With a mask, on that of each CTA.
    """
    address, mask_index, site = d.address(0), d.position("mask"), d.site
    mask_slot = None if mask_index is None else d.source(mask_index)
    offset = np.uint64(address.offset)

    def general(window: Window, mask: Mask | None) -> None:
        chosen, batch = _active(window, mask), window.batch
        if not len(chosen):
            return
        lanes = window.lane_numbers[chosen]
        addresses = pick(window.rows[address.slot], chosen).astype(np.uint64) + offset
        if mask_slot is None:
            slots, owners = batch.mbarriers.known(addresses, lanes, site), np.arange(len(lanes))
        else:
            slots, owners = _everywhere(batch, addresses, lanes, pick(window.rows[mask_slot], chosen), site)
        if batch.recorder.recording:
            batch.recorder.mbarrier(site, slots, lanes[owners], batch.mbarriers.phases(slots))
        batch.tensor.commit(lanes, slots, owners, site)

    return action(general)


def _everywhere(batch: Batch, addresses: Array, lanes: Array, masks: Array, site: Any) -> tuple[Array, Array]:
    """The barriers at the same offset in every CTA of a multicast mask, and the owner of each."""
    batch.checks.asynchronous.multicast(masks, lanes, site)
    _, offsets = batch.cluster.find(addresses, lanes)
    owners, ranks = np.nonzero(batch.cluster.named(masks))
    peers = batch.cluster.peers(batch.cluster.own(lanes)[owners], ranks)
    return batch.mbarriers.known_at(peers, offsets[owners], lanes[owners], site), owners


MEANINGS: Mapping[str, Callable[[Decoding], "Step | ControlStep"]] = {
    "tcgen05.alloc": allocate,
    "tcgen05.dealloc": free,
    "tcgen05.relinquish": relinquish,
    "tcgen05.ld": load,
    "tcgen05.st": store,
    "tcgen05.wait": wait,
    "tcgen05.fence": fence,
    "tcgen05.mma": multiply,
    "tcgen05.mma.ws": multiply,
    "tcgen05.cp": copy,
    "tcgen05.shift": shift_down,
    "tcgen05.commit": commit,
}
