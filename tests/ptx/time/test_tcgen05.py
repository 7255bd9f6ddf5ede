"""Products of tcgen05 in time: their rate by shape, what shared memory and tensor memory take, commits, overlap."""

from dataclasses import replace

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous import tcgen05 as made_ptx
from tests.ptx.time import made
from tests.ptx.time.made import Act, Kind, Op, Pipe

from kernbench.common.errors import MachineError
from kernbench.ptx.machine import load
from kernbench.ptx.recording.recording import Instructions
from kernbench.ptx.time import Reason, Unit
from kernbench.ptx.time.launch import BUDGET, time_launch
from kernbench.ptx.time.tensor import accessed_bytes, copied_bytes

B200 = load("b200").override({"launch.first": 0, "l2.spread": 0, "hbm.spread": 0})
SMS = int(B200.chip.sms)
END = Op(Pipe.CONTROL)
MMA, PAIR = "tcgen05.mma.cta_group::1.kind::f16", "tcgen05.mma.cta_group::2.kind::f16"
LOAD, STORE = "tcgen05.ld.sync.aligned.32x32b.x32.b32", "tcgen05.st.sync.aligned.32x32b.x32.b32"
COPY = "tcgen05.cp.cta_group::1.128x256b"
OPCODES = (MMA, PAIR, LOAD, STORE, COPY)


def product(m=128, n=256, shared=None, target=0, opcode=MMA) -> Op:
    sms = 2 if opcode == PAIR else 1
    nbytes = 32 * (m + n) // sms if shared is None else shared
    event = {"object": m << 16 | n, "phase": target, "bytes": nbytes, "lanes": 1, "instruction": OPCODES.index(opcode)}
    return Op(Pipe.TCGEN05, stall=2, kind=Kind.TENSOR_MMA, act=Act.MULTIPLY, event=event)


def other(kind: Kind, opcode: str, **given) -> Op:
    return Op(Pipe.TCGEN05, kind=kind, event={"lanes": 32, "instruction": OPCODES.index(opcode)}, **given)


def commit(number: int, phase: int = 0) -> Op:
    event = {"object": number, "phase": phase, "lanes": 1}
    return Op(Pipe.TCGEN05, kind=Kind.TENSOR_COMMIT, act=Act.COMMIT, event=event)


def wait(number: int, phase: int = 0) -> list[Op]:
    event = {"object": number, "phase": phase, "lanes": 32}
    return [Op(Pipe.MBARRIER, kind=Kind.MBARRIER_WAIT, act=Act.WAIT, write=0, event=event), Op(Pipe.CONTROL, wait=1)]


def timed(programs, gpu=B200, budget=BUDGET, **given):
    recording, streams = made.launch(programs, **given)
    count = len(OPCODES)
    rows = Instructions(
        np.arange(1, count + 1, dtype=np.int32), OPCODES, OPCODES, np.zeros(count, np.int32), ("main",),
        np.zeros(count, np.uint8), np.zeros(count, bool),
    )  # fmt: skip
    return time_launch(replace(recording, instructions=rows), streams, gpu, budget)


def busy(programs, **given) -> float:
    """Cycles from the first product to the end of the last, of one CTA."""
    return timed([[*programs, commit(8), *wait(8), END]], **given).cycles


def each(op: Op, count=200) -> float:
    return (busy([op] * (2 * count)) - busy([op] * count)) / count


@pytest.mark.parametrize("shape", [(128, 256), (128, 128)])
def test_products_that_dominate_reach_the_published_rate(shape):
    count = 6000
    # A in tensor memory, so that shared memory has time for B
    one = timed([[*[product(*shape, shared=32 * shape[1])] * count, commit(8), *wait(8), END]], ctas=SMS, budget=20_000)
    flops = SMS * count * 2.0 * shape[0] * shape[1] * 16
    peak = SMS * 8192 * one.clock_mhz * 1e6
    assert 0.97 < flops / one.seconds / peak <= 1
    assert one.bound is Unit.TENSOR
    assert one.busy[Unit.TENSOR] == pytest.approx(1, abs=0.03)
    assert one.seconds >= one.floor_seconds == pytest.approx(flops / peak)


@pytest.mark.parametrize(
    ("shape", "shared", "measured"),
    [
        # by clock64 on a B200, A and B out of shared memory: an m64n256 is bound by its bytes
        ((64, 256), None, 80.0), ((64, 128), None, 52.5),
        # and A out of tensor memory; 4 bits a number (NVFP4) by those of 32 bytes a row
        ((128, 256), 32 * 256, 128.0), ((128, 64), None, 48.0), ((128, 128), None, 64.0), ((128, 256), None, 128.0),
    ],
)  # fmt: skip
def test_a_product_takes_what_was_published_of_its_shape(shape, shared, measured):
    assert each(product(*shape, shared=shared)) == pytest.approx(measured, rel=0.1)


def test_narrow_products_of_one_result_wait_for_each_other_and_others_do_not():
    chain = each(product(64, 64, shared=64 * 32))
    assert chain == pytest.approx(float(B200.tensor.tcgen05_chain))
    apart = [product(64, 64, shared=64 * 32, target=64 * n) for n in range(4)] * 50
    assert (busy(apart * 2) - busy(apart)) / 200 == pytest.approx(16, rel=0.05)


def test_two_sms_that_multiply_together_take_the_time_of_half_the_rows_and_read_half_of_b():
    assert each(product(256, 256, opcode=PAIR)) == pytest.approx(each(product(128, 256)))
    # bound by shared memory: half of B is what the other SM reads
    alone = [product(128, 64, target=64 * (n % 2)) for n in range(200)]
    pair = [product(256, 64, target=64 * (n % 2), opcode=PAIR) for n in range(200)]
    taken = [(busy(program * 2) - busy(program)) / 200 for program in (alone, pair)]
    assert taken == pytest.approx([32 * (128 + 64) / 128, 32 * (128 + 32) / 128], rel=0.02)


def test_a_pair_is_two_tensor_cores_at_work():
    leader = [*[product(256, 256, opcode=PAIR)] * 500, commit(8), *wait(8), END]
    both = timed([[END]], classes=[[leader], [[*[Op(Pipe.FMA)] * 10, END]]], ctas=2)
    assert both.busy[Unit.TENSOR] == pytest.approx(1, abs=0.05)


def test_both_ctas_of_a_pair_wait_for_the_products_that_one_of_them_began():
    further = Op(Pipe.CONTROL, kind=Kind.BULK_MULTICAST, event={"object": 8 + (1 << 20), "phase": 0, "lanes": 1})
    products = [product(256, 256, opcode=PAIR)] * 50
    leader = [*products, commit(8), further, *wait(8), END]
    both = timed([[END]], classes=[[leader], [[*wait(8), END]]], ctas=2, cluster=2)
    # the CTA that began nothing ends a way through the cluster later
    late = both.spans.end[both.spans.cta == 1] - both.spans.end[both.spans.cta == 0]
    assert both.cycles > 50 * 128
    assert 0 < late[0] <= float(B200.cluster.one_way) + 1


def test_a_commit_arrives_after_all_products_and_their_tail():
    work = float(128 * B200.tensor.tcgen05 / B200.tensor.tcgen05)
    more = busy([product()]) - busy([])
    assert more == pytest.approx(work + float(B200.tensor.tcgen05_tail), rel=0.05)


@pytest.mark.parametrize(
    ("kind", "opcode", "act", "figure"),
    [(Kind.TENSOR_LOAD, LOAD, Act.LOAD, "memory_load"), (Kind.TENSOR_STORE, STORE, Act.STORE, "memory_store")],
)
def test_tensor_memory_gives_and_takes_its_bytes_a_cycle(kind, opcode, act, figure):
    op = other(kind, opcode, act=act, write=0)
    program = [op] * 64, [op] * 128
    times = [timed([[*one, Op(Pipe.FMA, wait=1), END]] * 4).cycles for one in program]
    # four warps, each with the way of its sub-core
    assert (times[1] - times[0]) / 64 == pytest.approx(4096 / float(getattr(B200.tensor, figure)), rel=0.01)


def test_what_needs_a_loaded_register_waits_for_tensor_memory():
    op = other(Kind.TENSOR_LOAD, LOAD, act=Act.LOAD, write=0)
    one = timed([[op, Op(Pipe.FMA, wait=1), END]])
    assert one.cycles >= 4096 / float(B200.tensor.memory_load) + float(B200.tensor.memory_latency)
    assert max(one.stalls.by_reason(), key=one.stalls.by_reason().get) is Reason.TENSOR


def test_wait_st_goes_on_when_what_was_stored_is_there():
    op = other(Kind.TENSOR_STORE, STORE, act=Act.STORE)
    waits = Op(Pipe.FENCE, kind=Kind.TENSOR_WAIT, act=Act.WAIT, event={"lanes": 32})
    late = timed([[op, waits, END]]).cycles - timed([[op, END]]).cycles
    assert late > 4096 / float(B200.tensor.memory_store)


def test_copies_into_tensor_memory_take_the_tensor_core_in_their_turn():
    copy = other(Kind.TENSOR_COPY, COPY, act=Act.NONE)
    assert each(copy) == pytest.approx(4096 / float(B200.tensor.tcgen05_copy), rel=0.01)
    mixed = [copy, product()] * 100
    assert (busy(mixed * 2) - busy(mixed)) / 100 == pytest.approx(each(copy) + each(product()), rel=0.01)


def test_accesses_to_shared_memory_wait_for_operands():
    reads = [Op(Pipe.SHARED, write=0, stall=2, kind=Kind.SHARED_LOAD, event={"wavefronts": 4, "lanes": 32})] * 100
    alone = [[END], [*reads, Op(Pipe.FMA, wait=1), END]]
    beside = [[*[product()] * 50, END], alone[1]]
    ends = [np.max(timed(one).followed.issued[timed(one).followed.warp == 1]) for one in (alone, beside)]
    assert ends[1] > 1.5 * ends[0]


def pipeline(stages: int, turns: int = 40) -> list[list[Op]]:
    """A warp that copies tiles in, one that multiplies them: as many tiles are under way as there are stages."""
    producer, consumer = [], []
    for turn in range(turns):
        stage, phase = turn % stages, turn // stages
        full, empty = 8 + 16 * stage, 16 + 16 * stage
        if phase:
            producer += wait(empty, phase - 1)
        tile = {"object": full, "phase": phase, "bytes": 49152, "sectors": 1536, "lines": 384, "other": 1536.0}
        copied = {**tile, "other_distance": 20, "lanes": 1}
        producer.append(Op(Pipe.BULK, kind=Kind.BULK_LOAD, act=Act.LOAD, stall=2, event=copied))
        consumer += [*wait(full, phase), *[product()] * 4, commit(empty, phase)]
    return [[*producer, END], [*consumer, *wait(16 + 16 * ((turns - 1) % stages), (turns - 1) // stages), END]]


def test_a_pipeline_with_too_few_stages_shows_as_exposed_wait():
    one, four = (timed(pipeline(stages)) for stages in (1, 4))
    # four stages hide all copies but the first
    assert four.busy[Unit.TENSOR] > 0.9
    assert one.cycles > 1.5 * four.cycles
    exposed = [time.stalls.by_reason()[Reason.MBARRIER] for time in (one, four)]
    assert max(one.stalls.by_reason(), key=one.stalls.by_reason().get) is Reason.MBARRIER
    assert exposed[0] > exposed[1]


@pytest.mark.parametrize(
    ("count", "opcode", "nbytes"),
    [
        (accessed_bytes, LOAD, 4096), (accessed_bytes, "tcgen05.ld.sync.aligned.16x256b.x8.b32", 4096),
        (accessed_bytes, "tcgen05.ld.sync.aligned.16x128b.x8.b32", 2048),
        (accessed_bytes, "tcgen05.st.sync.aligned.16x64b.x128.b32", 16384),
        (accessed_bytes, "tcgen05.ld.sync.aligned.16x32bx2.x4.b32", 512),
        (accessed_bytes, "tcgen05.ld.sync.aligned.32x32b.x2.pack::16b.b32", 256),
        (accessed_bytes, "tcgen05.wait::ld.sync.aligned", 0), (accessed_bytes, MMA, 0), (copied_bytes, COPY, 4096),
        (copied_bytes, "tcgen05.cp.cta_group::1.32x128b.warpx4", 512),
        (copied_bytes, "tcgen05.cp.cta_group::2.4x256b", 128), (copied_bytes, MMA, 0),
    ],
)  # fmt: skip
def test_bytes_of_accesses_to_tensor_memory(count, opcode, nbytes):
    assert count(opcode) == nbytes


@pytest.mark.parametrize(
    ("kind", "types"),
    [("f16", ("f32", "bf16", "bf16")), ("tf32", ("f32", "tf32", "tf32")), ("f8f6f4", ("f32", "e4m3", "e5m2")),
     ("i8", ("s32", "u8", "s8"))],
)  # fmt: skip
def test_a_product_is_recorded_with_its_shape_and_what_it_reads_of_shared_memory(kind, types):
    n = 64
    _, _, data, descriptors = made_ptx.tiles(1, 128, n, made_ptx.DEPTH[kind], types)
    code = made_ptx.kernel(made_ptx.mma(kind) + made_ptx.COMMIT + made_ptx.WAIT + made_ptx.load(n), n)
    run, _ = made_ptx.launch(code, data, descriptors, made_ptx.idesc(128, n, types), n, record=True)
    events = run.recording.events
    (at,) = np.flatnonzero(events.kind == Kind.TENSOR_MMA)
    assert (events.object[at], events.bytes[at], events.phase[at]) == (128 << 16 | n, 32 * (128 + n), 0)


@pytest.mark.parametrize(
    ("key", "what", "one"),
    [
        ("tcgen05", "tcgen05.mma", product()),
        ("tcgen05_copy", "tcgen05.cp", other(Kind.TENSOR_COPY, COPY)),
        ("memory_load", "tcgen05.ld", other(Kind.TENSOR_LOAD, LOAD)),
        ("memory_store", "tcgen05.st", other(Kind.TENSOR_STORE, STORE)),
    ],
)
def test_a_gpu_that_lacks_an_instruction_gives_no_time_for_it(key, what, one):
    """It was free."""
    with pytest.raises(MachineError, match=f"has no {what}, which this launch uses: tensor.{key} is 0"):
        timed([[one, END]], B200.override({f"tensor.{key}": 0}))
