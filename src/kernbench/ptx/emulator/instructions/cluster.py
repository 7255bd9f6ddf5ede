"""Clusters: their barrier, addresses and stores in other CTAs, launch control; and tensor maps that kernels build."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.copies import tensor_maps
from kernbench.ptx.emulator.asynchronous.copies.begin_kernels import CTA, OFFSET
from kernbench.ptx.emulator.asynchronous.copies.bulk import begin_write, locate_shared, shared_ends
from kernbench.ptx.emulator.asynchronous.copies.completion import distinct, on_barrier
from kernbench.ptx.emulator.asynchronous.copies.reductions import reduction_of
from kernbench.ptx.emulator.barriers.cluster_barrier import Waiter
from kernbench.ptx.emulator.barriers.gathering import together
from kernbench.ptx.emulator.instructions.mbarrier import active_lanes, addresses_of, values_of
from kernbench.ptx.emulator.lanes.clusters import RANK_SHIFT
from kernbench.ptx.emulator.lanes.flags import Key, Registers
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.operand_rows import OperandRows
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, SHARED_BASE, WRITTEN, Arena
from kernbench.ptx.emulator.observer.origins import Origin
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import AnyFragment, ControlStep, Step, action
from kernbench.ptx.emulator.units.batch import Batch, Fragment, Scheduler, Window
from kernbench.ptx.launching.tensor_map import TENSOR_MAP_BYTES

_OFFSET_BITS = (1 << RANK_SHIFT) - 1
_ANSWER_BYTES = 16


def key_of(register: Register) -> Key:
    """The key of a register's undefined bits."""
    return register.bank, register.row


def barrier(d: Decoding) -> ControlStep:
    """barrier.cluster.arrive and wait."""
    following, site = d.following, d.site
    waits, ordered, aligned = d.mod("mode") == "wait", d.mod("sem") != "relaxed", d.has("aligned")

    def run(scheduler: Scheduler, fragment: Fragment) -> AnyFragment | None:
        if waits:
            return scheduler.cluster.wait(fragment, Waiter(fragment, following, site, ordered))
        scheduler.cluster.arrive(fragment, site, ordered)
        return fragment.at(following)

    if not aligned:
        return ControlStep(run)
    meeting = together(run, following, site)
    return ControlStep(lambda scheduler, fragment: scheduler.gathering.arrive(fragment, meeting))


def map_address(d: Decoding) -> Step:
    """mapa: the address of the same variable in the CTA of a rank."""
    generic = "shared" not in d.mod("space")

    def function(address: Any, rank: Any, target: Any) -> None:
        kind = target.dtype.type
        base = kind(SHARED_BASE) if generic and target.itemsize == 8 else kind(0)
        target[...] = (address & kind(_OFFSET_BITS)) | (rank.astype(target.dtype) << kind(RANK_SHIFT)) | base

    return d.compute(function, [d.source(1), d.source(2)], [d.target(0)])


def rank_of_address(d: Decoding) -> Step:
    """getctarank: the CTA whose shared memory contains an address."""

    def function(address: Any, target: Any) -> None:
        kind = address.dtype.type
        target[...] = ((address & kind(0xFFFFFFFF)) >> kind(RANK_SHIFT)).astype(target.dtype)

    return d.compute(function, [d.source(1)], [d.target(0)])


def store(d: Decoding) -> Step:
    """st.async and red.async: a store to a CTA of the cluster that completes on an mbarrier."""
    address, values, site = d.address(0), [d.register_slot(slot) for slot in d.sources(1)], d.site
    barrier_address = d.address(2)
    reduction = reduction_of(d.mod("op"), d.mod("type")) if d.has("op") else None
    registers = [register for register in d.registers_of(1) if register is not None]
    keys, stores = Registers(map(key_of, registers)), len(registers) == len(values) and d.stores_registers

    def general(window: Window, mask: Mask | None) -> None:
        batch, lanes = window.batch, active_lanes(window, mask)
        dtype = batch.table.slots[values[0]].dtype
        data = np.stack([values_of(window, slot, mask, dtype) for slot in values], axis=1)
        slots = batch.mbarriers.known(addresses_of(window, barrier_address, mask), lanes, site)
        which = np.flatnonzero(slots >= 0)
        ctas, offsets = batch.cluster.find(addresses_of(window, address, mask)[which], lanes[which])
        sizes = np.full(len(which), data.itemsize * data.shape[1])
        completion = on_barrier(batch, lanes[which], slots[which], sizes, site, generic=True)
        if batch.recorder.recording:
            batch.recorder.mbarrier(site, slots[which], lanes[which], completion.phases, sizes)
        undefined: tuple[Array, Origin] | None = None
        if stores and batch.checks.definedness.flags.known(window, keys):
            undefined = _undefined(window, mask, registers, which, data.itemsize, site)
        begin_write(batch, data[which], shared_ends(batch, ctas, offsets), completion, site, reduction, undefined)

    return action(general)


def _undefined(
    window: Window, mask: Mask | None, registers: list[Register], which: Array, nbytes: int, site: Site
) -> tuple[Array, Origin] | None:
    """The undefined bytes of registers in some active lanes, [lanes, bytes], and their origin."""
    definedness = window.batch.checks.definedness
    parts, origin = [], None
    for register in registers:
        bits = definedness.flags.get(window, key_of(register))
        bits = np.zeros(window.size, np.uint32) if bits is None else bits
        bits = (bits if mask is None else bits[mask])[which]
        parts.append(bits[:, None] >> np.arange(nbytes, dtype=np.uint32) & np.uint32(1) != 0)
        if origin is None and parts[-1].any():
            origin = definedness.origin_of(register, key_of(register), site)
    return None if origin is None else (np.concatenate(parts, axis=1), origin)


def store_bulk(d: Decoding) -> Step:
    """st.bulk: zeros to shared memory."""
    address, size = d.address(0), d.source(1)

    def general(window: Window, mask: Mask | None) -> None:
        batch, lanes = window.batch, active_lanes(window, mask)
        ends = shared_ends(batch, *batch.cluster.find(addresses_of(window, address, mask), lanes))
        shared = batch.port.space("shared")
        for start, limit, nbytes in zip(ends.starts, ends.limits, values_of(window, size, mask), strict=True):
            part = slice(int(start), int(min(start + nbytes, limit)))
            shared.words[1][part] = 0
            shared.state[1][part] |= WRITTEN
        batch.port.changes += 1

    return action(general)


def replace(d: Decoding) -> Step:
    """tensormap.replace: one field of a tensor map in shared or global memory."""
    address, field, index = d.address(0), d.mod("field"), d.position("index")
    ordinal = None if index is None else d.constant_of(index)
    position = d.position("value")
    assert position is not None
    operands = OperandRows(d.table, [(address.slot, address.offset), (d.source(position), 0)], ())

    def general(window: Window, mask: Mask | None) -> None:
        batch, lanes = window.batch, active_lanes(window, mask)
        (addresses, values), _ = operands.take(batch, lanes)
        located, _ = locate_shared(batch, addresses, lanes)
        # the fast path: maps in shared memory that are valid already, up to the first that is not
        where = tensor_maps.extent(field, ordinal)
        shared, fast = batch.port.space("shared").words[1], batch.launch.fast.valid_maps
        done = tensor_maps.set_fields(shared, located, values, *where) if fast else 0
        rest = _objects(batch, addresses[done:], lanes[done:]) if done < len(lanes) else []
        for data, new in zip(rest, values[done:].tolist(), strict=True):
            if data is not None:
                tensor_maps.replace(data, field, ordinal, new)
        batch.port.changes += 1

    return action(general)


def _objects(batch: Batch, addresses: Array, lanes: Array) -> list[Array | None]:
    """The 128 bytes at each address of shared or global memory, in place; None outside memory."""
    located, _ = locate_shared(batch, addresses, lanes)
    found: list[Array | None] = []
    for address, cta, offset in zip(addresses.tolist(), located[CTA].tolist(), located[OFFSET].tolist(), strict=True):
        address = batch.launch.arena.real(address)
        inside = GLOBAL_BASE <= address < SHARED_BASE
        space = batch.port.space("global" if inside else "shared")
        start = address - GLOBAL_BASE if inside else cta * batch.shared_stride + offset
        limit = space.size if inside else cta * batch.shared_stride + space.size
        fits = start >= 0 and start + TENSOR_MAP_BYTES <= limit
        if inside and fits:
            _changes(batch.launch.arena, start, TENSOR_MAP_BYTES)
        found.append(space.words[1][start : start + TENSOR_MAP_BYTES] if fits else None)
    return found


def _changes(arena: Arena, start: int, nbytes: int) -> None:
    """Add a write to the footprint, if there is one."""
    if arena.footprint is not None:
        arena.footprint.ranges(np.array([start]), np.array([nbytes]), True, everything=True)


def copy_map(d: Decoding) -> Step:
    """tensormap.cp_fenceproxy: copy a tensor map from shared to global memory, visible to the tensor map proxy."""
    target, source, size = d.address(0), d.address(1), d.constant_of(2) or TENSOR_MAP_BYTES
    d.store_space = "global"

    def general(window: Window, mask: Mask | None) -> None:
        batch, lanes = window.batch, active_lanes(window, mask)
        arena = batch.launch.arena
        addresses, sources = addresses_of(window, target, mask), addresses_of(window, source, mask)
        # usually all lanes of a warp copy the same map
        which = distinct(lanes, addresses.view(np.int64), sources.view(np.int64))
        lanes, addresses, sources = lanes[which], addresses[which], sources[which]
        for data, address in zip(_objects(batch, sources, lanes), addresses.tolist(), strict=True):
            start = arena.real(address) - GLOBAL_BASE
            if data is not None and 0 <= start <= arena.used - size:
                arena.words[1][start : start + size] = data[:size]
                arena.state[1][start : start + size] |= WRITTEN
                _changes(arena, start, size)
                batch.checks.asynchronous.map_written(address)
        batch.port.changes += 1

    return action(general)


def cancel(d: Decoding) -> Step:
    """clusterlaunchcontrol.try_cancel: take over a cluster that has not begun, and answer which, or that none is left.

    In a recording all clusters begin: the times of each are those of its own work.
    """
    address, barrier_address, site = d.address(0), d.address(1), d.site
    everywhere = d.has("multicast")

    def general(window: Window, mask: Mask | None) -> None:
        batch, lanes = window.batch, active_lanes(window, mask)
        size = batch.cluster.size if everywhere else 1
        positions = np.repeat(np.arange(len(lanes)), size)
        ctas, offsets = batch.cluster.find(addresses_of(window, address, mask), lanes)
        _, barriers = batch.cluster.find(addresses_of(window, barrier_address, mask), lanes)
        ranks = np.tile(np.arange(size), len(lanes))
        homes = batch.cluster.peers(ctas[positions], ranks) if everywhere else ctas
        slots = batch.mbarriers.at(homes, barriers[positions])
        which = np.flatnonzero(slots >= 0)
        at = positions[which]
        completion = on_barrier(batch, lanes[at], slots[which], np.full(len(at), _ANSWER_BYTES), site)
        answers = np.array([_answer(batch) for _ in lanes], np.uint32).reshape(-1, 4)
        begin_write(
            batch, answers.view(np.uint8)[at], shared_ends(batch, homes[which], offsets[at]), completion, site, None
        )

    return action(general)


def _answer(batch: Batch) -> tuple[int, int, int, int]:
    """The answer to a request: the coordinates of the first CTA of a cluster, and whether there is one."""
    number = -1 if batch.recorder.recording else batch.launch.cancel_cluster()
    if number < 0:
        return 0, 0, 0, 0
    x, y, _ = batch.launch.grid
    return number % x, number // x % y, number // (x * y), 1


def query(d: Decoding) -> Step:
    """clusterlaunchcontrol.query_cancel: whether a cluster was taken over, or the coordinates of its first CTA."""
    field = d.mod("field")
    words = {"is_canceled": [3], "get_first_ctaid": [0, 1, 2, 3]}.get(field) or ["xyz".index(field[-1])]

    def function(low: Array, high: Array, *targets: Array) -> None:
        values = [half >> np.uint64(shift) & np.uint64(0xFFFFFFFF) for half in (low, high) for shift in (0, 32)]
        for word, target in zip(words, targets, strict=True):
            target[...] = values[word].astype(target.dtype)

    return d.compute(function, d.halves(d.source(1)), d.targets(0))


MEANINGS: Mapping[str, Callable[[Decoding], "Step | ControlStep"]] = {
    "bar.cluster": barrier,
    "mapa": map_address,
    "getctarank": rank_of_address,
    "st.async": store,
    "red.async": store,
    "st.bulk": store_bulk,
    "tensormap.replace": replace,
    "tensormap.cp_fenceproxy": copy_map,
    "cluster.cancel": cancel,
    "cluster.query": query,
}
