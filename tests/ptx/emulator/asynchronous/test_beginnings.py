"""Copies that begin: operands, lanes that begin the same one, maps of several blocks; against the plain way."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests import sampled
from tests.ptx.emulator.asynchronous.conftest import edited, kinds
from tests.ptx.emulator.asynchronous.kernels import dump_box, put_box

from kernbench import ptx
from kernbench.ptx.emulator.asynchronous.agents import Agent, Agents
from kernbench.ptx.emulator.asynchronous.copies import tensor_maps, tile_kernels
from kernbench.ptx.emulator.asynchronous.copies.begin_kernels import LIMIT, START
from kernbench.ptx.emulator.asynchronous.copies.completion import distinct
from kernbench.ptx.emulator.asynchronous.copies.tensors import TensorMaps
from kernbench.ptx.emulator.fast_paths import ALL
from kernbench.ptx.emulator.lanes.operand_rows import OperandRows
from kernbench.ptx.emulator.lanes.slots import ConstantSlot, RegisterSlot, SlotTable, SpecialSlot

LANES = 64


@pytest.mark.parametrize("seed", range(12))
def test_operands_are_those_of_each_slot(seed):
    random = np.random.default_rng(seed)
    banks = {
        "uint32": random.integers(0, 1 << 32, (3, LANES), np.uint32),
        "uint64": random.integers(0, 1 << 64, (3, LANES), np.uint64),
        "bool": random.random((2, LANES)) < 0.5,
    }
    wide, narrow = random.integers(0, 1 << 64, LANES, np.uint64), random.integers(0, 1 << 32, LANES, np.uint32)
    table = SlotTable()
    rows = {
        table.number(RegisterSlot("uint32", 1)): banks["uint32"][1],
        table.number(RegisterSlot("uint64", 2)): banks["uint64"][2],
        table.number(ConstantSlot(0xFFFF_FFF0, "uint32")): np.array(0xFFFF_FFF0, np.uint32),
        table.number(ConstantSlot(1 << 63, "uint64")): np.array(1 << 63, np.uint64),
        table.number(SpecialSlot("%wide", "uint64")): wide,
        table.number(SpecialSlot("%narrow", "uint32")): narrow,
    }
    flag = table.number(RegisterSlot("bool", 1))
    short = [slot for slot, row in rows.items() if row.dtype == np.uint32]
    offsets = [0, 48, (1 << 64) - 16]
    addresses = [(int(random.choice(list(rows))), int(random.choice(np.array(offsets, np.uint64)))) for _ in range(4)]
    numbers = [int(random.choice(short)) for _ in range(5)]
    lanes = np.flatnonzero(random.random(LANES) < 0.4)
    batch = SimpleNamespace(banks=banks, row=rows.get)
    found, points = OperandRows(table, [*addresses, (flag, 0)], numbers).take(batch, lanes)
    assert found[-1].tolist() == banks["bool"][1][lanes].tolist()
    for (slot, offset), given in zip(addresses, found[:-1].tolist(), strict=True):
        bits = 32 if rows[slot].dtype == np.uint32 else 64
        held = np.broadcast_to(rows[slot], LANES)[lanes].tolist()
        assert given == [(value + offset) % (1 << bits) for value in held]
    for slot, given in zip(numbers, points.T.tolist(), strict=True):
        held = np.broadcast_to(rows[slot], LANES)[lanes].astype(np.uint32).view(np.int32)
        assert given == held.tolist()


@sampled.each(range(20))
def test_operations_that_differ(seed):
    random = np.random.default_rng(seed)
    lanes = random.integers(0, 96, 40)
    lanes = np.sort(lanes) if seed % 2 else lanes
    keys, more = random.integers(0, 2, 40), random.integers(0, 2, (40, 2))
    seen, first = set(), []
    for i, one in enumerate(zip(lanes // 32, keys, *more.T, strict=True)):
        first += [] if one in seen else [i]
        seen.add(one)
    apart = not (lanes[1:] // 32 == lanes[:-1] // 32).any()
    assert distinct(lanes, keys, more).tolist() == (list(range(40)) if apart else first)


@sampled.each(range(20))
def test_rows_of_boxes_inside_the_tensor(seed):
    random = np.random.default_rng(seed)
    rank, element, unit = 1 + seed % 4, int(random.choice([1, 2, 4])), (1, 16)[seed % 2]
    shape = random.integers(1, 6, (4, rank))
    shape[0, 0], shape[2, 0] = random.integers(1, 40), 16 // element * random.integers(1, 4)
    coordinates, chosen = random.integers(-4, 8, (5, rank)), np.array([4, 0, 2])
    box = (1000, shape, element, np.zeros(5, np.int64), np.zeros(16, np.uint8))
    found = np.empty((3, 3 * int(shape[2, 1:].prod())), np.int64)
    count = tile_kernels.find_rows(box, coordinates, chosen, unit, found)
    rows = []
    for op in chosen.tolist():
        start = int(coordinates[op, 0]) * element
        end = -(-(int(shape[0, 0]) * element - start) // unit) * unit
        low, high = max(0, -start), min(int(shape[2, 0]) * element, end)
        for steps in np.ndindex(*shape[2, :0:-1].tolist()):
            at = [int(coordinates[op, d]) + int(steps[rank - 1 - d] * shape[3, d]) for d in range(1, rank)]
            if all(0 <= one < shape[0, d] for d, one in enumerate(at, 1)) and high > low:
                offset = sum(one * int(shape[1, d]) for d, one in enumerate(at, 1))
                rows.append([1000 + offset + start + low, high - low, op])
    assert found[:, :count].T.tolist() == rows


@sampled.each(range(30))
def test_agents_read_and_finish_each_operation_once(seed):
    """By random masks, in turns, against a plain list of what was done."""
    random = np.random.default_rng(seed)
    agents, done, wanted = Agents(SimpleNamespace(journal=None, launch=SimpleNamespace(fast=ALL))), [], []
    left, unread = set(range(6)), set(range(6))

    def note(what):
        return lambda chosen: done.append((what, chosen.tolist()))

    agents.begin(Agent("bulk", None, np.arange(6), note("perform"), note("signal"), note("read"), np.zeros(6)))
    for _ in range(6):
        chosen, reading = random.random(6) < random.choice([0.0, 0.4, 1.0]), bool(random.random() < 0.5)
        some = set(np.flatnonzero(chosen).tolist())
        now = sorted(some & unread if reading else some & left & unread)
        wanted += [("read", now)] if now and agents else []
        unread -= set(now)
        if not reading and some & left:
            wanted += [("perform", sorted(some & left)), ("signal", sorted(some & left))]
            left -= some
        agents.complete("bulk", lambda agent, chosen=chosen: chosen, reading)
    agents.drain()
    wanted += [("read", sorted(left & unread))] if left & unread else []
    wanted += [("perform", sorted(left)), ("signal", sorted(left))] if left else []
    assert done == wanted
    assert not len(agents)


WHOLE_WARP = ("setp.ne.u32 %p0, %r0, 0", "setp.ge.u32 %p0, %r0, 32")
WAIT = "  @!%p0 cp.async.bulk.wait_group 0;\n"
# lanes of the warp that wait one after the other
IN_TURN = """
  setp.ge.u32 %p2, %r0, {first};
  @!%p2 cp.async.bulk.wait_group{read} 0;
  @!%p0 cp.async.bulk.wait_group 0;
"""


def stored(*edits, width=32, **options):
    device = ptx.EmulatedDevice("sm_90a")
    out = device.array(np.zeros((8, 32), np.uint32), "out")
    data = device.array(np.arange(512, dtype=np.uint32)[::2], "data")
    tensor_map = device.tensor_map(out, (width, 8), (128,), (32, 8))
    kernel = ptx.parse(edited(put_box(2, 1024), *edits)).kernels["kernel"]
    return device.launch(kernel, 1, 128, [tensor_map, data, 0, 0], **options), out.numpy()


@pytest.mark.parametrize("schedule", ["canonical", "eager"])
@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("wait", ["", IN_TURN.format(first=7, read=""), IN_TURN.format(first=1, read=".read")])
def test_lanes_of_a_warp_store_the_same_box(wait, checks, schedule):
    edits = [WHOLE_WARP, (WAIT, wait or WAIT)]
    run, out = stored(*edits, checks=checks, schedule=schedule)
    assert not run.findings
    assert not run.formal
    assert np.array_equal(out.reshape(-1), np.arange(512)[::2])


@pytest.mark.parametrize("wait", ["", IN_TURN.format(first=7, read="")])
@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        (("setp.ge.u32 %p1, %r3, 1024", "setp.ge.u32 %p1, %r3, 512"), "uninitialised-read"),
        (("}], [%r1];", "}], [%r1 + 1024];"), "out-of-bounds"),
    ],
)
def test_what_is_wrong_counts_for_each_lane(edit, kind, wait):
    """As many bytes as when one lane stores, for each of 32."""
    counts = []
    for more in ((), (WHOLE_WARP, (WAIT, wait or WAIT))):
        run, _ = stored(edit, *more)
        counts.append(sum(one.count for one in run.findings if one.kind == kind))
    assert counts[0] > 0
    assert counts[1] == 32 * counts[0]


def dumped(step, *edits, blocks=4, change=None, **options):
    """A box for each block, by the map that lies `step` bytes behind that of the block before.

    `change` is done to the bytes of the maps, a row each.
    """
    device = ptx.EmulatedDevice("sm_90a")
    array = device.array(np.arange(32 * 64, dtype=np.uint32).reshape(64, 32), "tensor")
    tensor_map = device.tensor_map(array, (32, 64), (128,), (32, 8))
    held = np.frombuffer(tensor_map.encoded * blocks, np.uint8).copy()
    if change is not None:
        change(held.reshape(blocks, -1))
    maps = device.array(held, "maps")
    out = device.array(np.zeros((blocks, 256), np.uint32), "out")
    text = edited(
        dump_box(2, 1024),
        (".param .align 64 .b8 map[128]", ".param .u64 map"),
        ("  mov.b64 %rd1, map;\n  cvta.param.u64 %rd1, %rd1;\n", "  ld.param.u64 %rd1, [map];\n"),
        (
            "  setp.ne.u32 %p0, %r0, 0;\n",
            f"  mov.u32 %r6, %ctaid.x;\n  mad.lo.u32 %r11, %r6, 8, %r11;\n  mad.wide.u32 %rd1, %r6, {step}, %rd1;\n"
            "  mad.wide.u32 %rd2, %r6, 1024, %rd2;\n  setp.ne.u32 %p0, %r0, 0;\n",
        ),
        *edits,
    )
    run = device.launch(ptx.parse(text).kernels["kernel"], blocks, 128, [maps, out, 0, 0], **options)
    return run, out.numpy()


FAULTS = {
    "": (),
    "no fence for the barrier": (("  @!%p0 fence.mbarrier_init.release.cluster;\n", ""),),
    "no fence for stores": (("  fence.proxy.async.shared::cta;\n", ""),),
    "too few bytes": (("_, [%r2], 1024;", "_, [%r2], 1000;"),),
    "too many bytes": (("_, [%r2], 1024;", "_, [%r2], 1040;"),),
    "no wait": (("  @!%p1 bra WAIT;\n", ""),),
    "no multiple": (("  mov.u32 %r1, box;\n", "  mov.u32 %r1, box;\n  add.u32 %r1, %r1, 16;\n"),),
    "outside": (("[%r1], [%rd1,", "[%r1 + 65536], [%rd1,"),),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("schedule", ["canonical", "eager"])
def test_blocks_with_equal_maps_of_their_own(fault, schedule):
    """Loads by several maps that say the same are as by one: outputs, findings, counts, and the order of all."""
    several, one = dumped(128, *FAULTS[fault], schedule=schedule), dumped(0, *FAULTS[fault], schedule=schedule)
    assert np.array_equal(several[1], one[1])
    assert several[0].findings == one[0].findings
    assert several[0].formal == one[0].formal
    assert several[0].views == one[0].views
    assert several[0].status == one[0].status
    if fault:
        assert kinds(several[0])
    else:
        assert np.array_equal(several[1].reshape(-1), np.arange(1024))
        assert not kinds(several[0])


def one_is_empty(maps):
    maps[2] = 0


def all_are_empty(maps):
    maps[:] = 0


def one_differs(maps):
    # the fill of what lies outside, or a stride
    maps[1, 100:] ^= 1


@pytest.mark.parametrize("change", [None, one_is_empty, all_are_empty, one_differs])
@pytest.mark.parametrize("step", [128, -128, 64])
def test_maps_that_are_alike_are_read_once(monkeypatch, change, step):
    """Whatever lies at the addresses of several maps, and in whatever order, it is as if each was read by itself."""
    edits = (("mad.wide.u32 %rd2", "add.u64 %rd1, %rd1, 384;\n  mad.wide.u32 %rd2"),) if step < 0 else ()
    step %= 1 << 64
    edits += (("mad.wide.u32 %rd1, %r6", "mul.wide.u32 %rd9, %r6, 1;\n  mad.lo.u64 %rd1, %rd9"),)
    wide = (".reg .b64 %rd<", ".reg .b64 %rd<9")
    ours = dumped(step, *edits, wide, change=change)
    with monkeypatch.context() as patch:
        patch.setattr(TensorMaps, "at_all", lambda self, addresses: None)
        plain = dumped(step, *edits, wide, change=change)
    assert np.array_equal(ours[1], plain[1])
    assert [str(one) for one in ours[0].findings] == [str(one) for one in plain[0].findings]
    assert ours[0].views == plain[0].views
    assert bool(kinds(ours[0])) == (change in (one_is_empty, all_are_empty) or step == 64)


@pytest.mark.parametrize("seed", range(6))
def test_fields_of_maps_are_set_up_to_the_first_that_is_none(seed):
    random = np.random.default_rng(seed)
    fields = [("global_address", None), ("rank", None), ("box_dim", 3), ("global_stride", 1), ("global_dim", 4)]
    for field, ordinal in fields:
        memory = random.integers(0, 256, 4096).astype(np.uint8)
        starts = 128 * random.permutation(31)[:6]
        located = np.zeros((4, 6), np.int64)
        located[START], located[LIMIT] = starts, 4096
        for start in starts[random.random(6) < 0.8]:
            memory[start + 8 : start + 12] = np.frombuffer(tensor_maps.MAGIC.to_bytes(4, "little"), np.uint8)
        if random.random() < 0.5:
            # one that leaves its block, or is elsewhere
            located[LIMIT, random.integers(6)] = random.choice([-1, 100])
        plain = [memory[s + 8 : s + 12].view("<u4")[0] == tensor_maps.MAGIC for s in starts]
        plain &= located[START] + 128 <= located[LIMIT]
        count = 6 if all(plain) else int(np.argmin(plain))
        values, expected = random.integers(0, 1 << 63, 6).astype(np.uint64), memory.copy()
        for start, value in zip(starts[:count], values[:count].tolist(), strict=True):
            tensor_maps.replace(expected[start : start + 128], field, ordinal, value)
        where = tensor_maps.extent(field, ordinal)
        assert tensor_maps.set_fields(memory, located, values, *where) == count
        assert np.array_equal(memory, expected)
