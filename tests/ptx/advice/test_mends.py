"""Each mend: a planted fault is named with what it costs, and a launch without it is left alone."""

from dataclasses import replace

import numpy as np
import pytest
from tests.ptx.time import made
from tests.ptx.time.made import Act, Kind, Op, Pipe, again, reading, shared

from kernbench.ptx.advice.advice import advise
from kernbench.ptx.time.changes import Again
from kernbench.ptx.time.launch import time_launch

NOTHING = Op(Pipe.INTEGER)


def kinds(timed: Again) -> dict:
    """The first advice of each kind."""
    return {one["kind"]: one for one in reversed(advise(timed))}


def named(timed: Again, opcodes: dict[int, str], texts: dict[int, str] | None = None) -> Again:
    """The launch with opcodes of some of its instructions."""
    rows = timed.recording.instructions
    words = tuple(opcodes.get(row, opcode) for row, opcode in enumerate(rows.opcode))
    text = tuple((texts or {}).get(row, old) for row, old in enumerate(rows.text))
    recording = replace(timed.recording, instructions=replace(rows, opcode=words, text=text))
    return replace(timed, recording=recording)


def saves(faulty: Again, mended: Again, kind: str, rel: float = 0.02) -> dict:
    """The advice on a fault, which saves what the launch without it takes less, and is not given for that one."""
    found = kinds(faulty)[kind]
    assert found["cost_ps"] == pytest.approx((faulty.time.seconds - mended.time.seconds) * 1e12, rel=rel)
    assert kind not in kinds(mended)
    return found


def test_accesses_that_touch_too_many_sectors():
    found = saves(again(reading(32, 32), ctas=264), again(reading(4, 1), ctas=264), "uncoalesced access")
    assert "12 % of the bytes" in found["message"]
    assert (found["line"], found["sure"]) == (1, "sure")


def test_accesses_with_addresses_that_were_loaded_may_have_to_be_scattered():
    gather = named(again(reading(32, 32), ctas=264), {0: "ld.global.u64"}, {0: "ld.global.u64 %rd1, [%rd1]"})
    assert kinds(gather)["uncoalesced access"]["sure"] == "at most"


def test_bytes_that_lanes_take_in_turn_are_read_once():
    """32 lanes that walk through a sector each: eight times 32 sectors, of which 32 come from memory."""
    turns = [made.load(32, 32, first=32), *[made.load(32, 32, own=32)] * 7]
    faulty = again([[*turns, Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=9, turns=4)]] * 8, ctas=264)
    mended = again([[*[made.load(4, 1, first=4)] * 8, Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=9, turns=4)]] * 8,
                   ctas=264)  # fmt: skip
    rows = replace(faulty.recording.instructions, block=np.zeros(10, np.int32))
    faulty = replace(faulty, recording=replace(faulty.recording, instructions=rows))
    (found,) = [one for one in advise(faulty) if one["kind"] == "uncoalesced access"]
    wanted = (faulty.time.seconds - mended.time.seconds) * 1e12
    assert found["cost_ps"] == pytest.approx(wanted, rel=0.1)


def test_bank_conflicts():
    found = saves(again(shared(16), ctas=132), again(shared(1), ctas=132), "bank conflict")
    assert "16.0 times the passes" in found["message"]


def test_spills():
    program = [Op(Pipe.LOCAL, write=0, act=Act.LOAD), Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=2, turns=50)]
    recording, streams = made.launch([program] * 8)
    spilled = np.array([op.pipe == Pipe.LOCAL for op in program])
    streams = replace(streams, ops=replace(streams.ops, implicit=spilled), spill_bytes=64)
    recording = made.with_instructions(recording, streams)
    faulty = Again(recording, streams, made.GPU, time_launch(recording, streams, made.GPU))
    mended = again([[Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=1, turns=50)]] * 8)
    assert saves(faulty, mended, "spills")["message"].startswith("64 bytes of registers")


def atomic(turns: int) -> Op:
    event = {"sectors": 1, "lines": 1, "wavefronts": turns, "bytes": 4 * turns, "lanes": turns, "other": 1.0}
    return Op(Pipe.GLOBAL, kind=Kind.GLOBAL_REDUCTION, event=event, act=Act.REDUCTION)


def test_atomics_on_one_address():
    faulty = again([[atomic(32), NOTHING, Op(Pipe.BRANCH, back=2, turns=20)]] * 8, ctas=264)
    found = kinds(faulty)["atomics"]
    assert "32 turns each time" in found["message"]
    once = again([[NOTHING, Op(Pipe.BRANCH, back=1, turns=20), atomic(1)], *[[NOTHING]] * 7], ctas=264)
    after = faulty.time.seconds - found["cost_ps"] * 1e-12
    assert after == pytest.approx(once.time.seconds, rel=0.15)
    assert advise(faulty)[0]["kind"] == "atomics"
    bins = {"sectors": 8, "lines": 2, "wavefronts": 12, "bytes": 128, "lanes": 32, "first": 0.001, "other": 7.999}
    bins = Op(Pipe.GLOBAL, kind=Kind.GLOBAL_REDUCTION, event=bins, act=Act.REDUCTION)
    found = kinds(again([[bins, NOTHING, Op(Pipe.BRANCH, back=2, turns=20)]] * 8, ctas=264))["atomics"]
    assert "12 turns each time" in found["message"]
    spread = {"sectors": 4, "lines": 1, "wavefronts": 4, "bytes": 128, "lanes": 32, "first": 4.0}
    apart = Op(Pipe.GLOBAL, kind=Kind.GLOBAL_REDUCTION, event=spread, act=Act.REDUCTION)
    assert "atomics" not in kinds(again([[apart] * 4] * 8, ctas=264))


def test_arrays_in_local_memory():
    event = {"sectors": 4, "lines": 1, "lanes": 32, "bytes": 128, "first": 4.0}
    local = Op(Pipe.LOCAL, write=0, kind=Kind.LOCAL_LOAD, event=event, act=Act.LOAD)
    faulty = again([[local, Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=2, turns=32)]] * 8, ctas=264)
    register = Op(Pipe.LOCAL, write=0, act=Act.LOAD)
    mended = again([[register, Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=2, turns=32)]] * 8, ctas=264)
    saves(faulty, mended, "local memory")


def test_loads_that_are_waited_for_one_by_one():
    load, use = made.load(4, 1, first=4), Op(Pipe.FMA, wait=1)
    faulty = again([[load, use, Op(Pipe.BRANCH, back=2, turns=64)]] * 8, ctas=264)
    together = again([[*[load] * 4, use, use, use, use, Op(Pipe.BRANCH, back=8, turns=16)]] * 8, ctas=264)
    found = kinds(faulty)["exposed wait"]
    assert (found["sure"], found["line"]) == ("at most", 1)
    assert faulty.time.seconds - found["cost_ps"] * 1e-12 == pytest.approx(together.time.seconds, rel=0.15)
    assert "store" not in found["message"]


def test_a_load_whose_address_was_loaded_cannot_be_earlier():
    program = [made.load(4, 1, first=4), Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=2, turns=64)]
    faulty = again([program] * 8, ctas=264)
    chain = named(faulty, {0: "ld.global.u64"}, {0: "ld.global.u64 %rd1, [%rd1]"})
    assert "exposed wait" in kinds(faulty)
    assert "exposed wait" not in kinds(chain)


def test_narrow_accesses():
    byte = {"sectors": 1, "lines": 1, "lanes": 32, "bytes": 32, "first": 1.0, "own_distance": 10, "other_distance": 10}
    load = Op(Pipe.GLOBAL, write=0, kind=Kind.GLOBAL_LOAD, event=byte, act=Act.LOAD, width=1)
    store = Op(Pipe.GLOBAL, wait=1, kind=Kind.GLOBAL_STORE, event=byte, act=Act.STORE, width=1)
    faulty = again([[load, store]] * 8, ctas=16_384)
    wide = {**byte, "sectors": 16, "lines": 4, "bytes": 512, "first": 16.0}
    load, store = (replace(one, event=wide, width=16) for one in (load, store))
    mended = again([[load, store]] * 8, ctas=1024)
    found = kinds(faulty)["narrow access"]
    assert "1 bytes a lane, of 16" in found["message"]
    assert faulty.time.seconds - found["cost_ps"] * 1e-12 == pytest.approx(mended.time.seconds, rel=0.25)
    assert "narrow access" not in kinds(mended)


def copies(groups: int) -> list[list[Op]]:
    """Warps that copy 16 groups, and wait for each when so many further ones are under way."""
    event = {"sectors": 4, "lines": 1, "lanes": 32, "bytes": 128, "first": 4.0}
    program = []
    for number in range(16 + groups):
        if number < 16:
            program += [Op(Pipe.CP_ASYNC, kind=Kind.ASYNC_COPY, event=event),
                        Op(Pipe.CONTROL, kind=Kind.ASYNC_COPY_COMMIT, event={"phase": number})]  # fmt: skip
        if number >= groups:
            program.append(Op(Pipe.CONTROL, kind=Kind.ASYNC_COPY_WAIT, event={"phase": number - groups + 1}))
    return [program] * 8


def test_one_more_stage_of_copies():
    faulty, mended = again(copies(0), ctas=264), again(copies(1), ctas=264)
    found = kinds(faulty)["too few stages"]
    assert faulty.time.seconds - found["cost_ps"] * 1e-12 == pytest.approx(mended.time.seconds, rel=0.1)
    # 128 bytes of each of 8 warps
    assert "1,024 bytes of shared memory more" in found["hint"]


def bulk(ahead: int) -> list[list[Op]]:
    """A warp that copies 16 times, each when what was copied `ahead` times before was read; another that reads."""
    stages = ahead
    copying, reading_them = [], []
    for number in range(16):
        stage, phase = number % stages, number // stages
        if number >= stages:
            free = {"object": 64 + 8 * stage, "phase": phase - 1}
            copying.append(Op(Pipe.MBARRIER, write=0, kind=Kind.MBARRIER_WAIT, event=free))
        event = {"sectors": 64, "lines": 16, "bytes": 2048, "first": 64.0, "object": 8 * stage, "phase": phase}
        copying.append(Op(Pipe.BULK, wait=1, kind=Kind.BULK_LOAD, event=event))
        full = {"object": 8 * stage, "phase": phase}
        given_back = {**full, "object": 64 + 8 * stage}
        reading_them += [Op(Pipe.MBARRIER, write=0, kind=Kind.MBARRIER_WAIT, event=full), Op(Pipe.FMA, wait=1),
                         Op(Pipe.MBARRIER, kind=Kind.MBARRIER_ARRIVE, event=given_back)]  # fmt: skip
    return [copying, reading_them]


def test_one_more_stage_of_bulk_copies():
    faulty, mended = again(bulk(1), ctas=132), again(bulk(2), ctas=132)
    found = kinds(faulty)["too few stages"]
    assert faulty.time.seconds - found["cost_ps"] * 1e-12 == pytest.approx(mended.time.seconds, rel=0.1)
    assert "2,048 bytes of shared memory more" in found["hint"]


def test_fences_and_barriers_that_need_not_be():
    fence = Op(Pipe.FENCE, kind=Kind.FENCE, event={"lanes": 32}, mnemonic="MEMBAR.SC.GPU")
    work = [Op(Pipe.FMA)] * 4
    faulty = again([[*work, fence, Op(Pipe.BRANCH, back=5, turns=16)]] * 8, ctas=1056)
    mended = again([[*work, Op(Pipe.BRANCH, back=4, turns=16)]] * 8, ctas=1056)
    assert saves(faulty, mended, "fences")["sure"] == "at most"


def test_low_occupancy_says_what_is_needed():
    found = kinds(again(reading(4, 1), ctas=800, registers=128))["low occupancy"]
    assert found["line"] is None
    assert "registers let an SM hold no more than" in found["message"]
    assert "registers a thread instead of 128" in found["hint"]
    assert "low occupancy" not in kinds(again(reading(4, 1), ctas=10, registers=128))


def test_a_grid_that_does_not_fill_the_gpu():
    part = [made.load(4, 1, first=4), Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=2, turns=320)]
    faulty = again([part] * 8, ctas=33)
    less = [*part[:2], Op(Pipe.BRANCH, back=2, turns=10)]
    mended = again([less] * 8, ctas=33 * 32)
    found = kinds(faulty)["small grid"]
    assert found["message"].startswith("33 CTAs do not fill the GPU")
    assert faulty.time.seconds - found["cost_ps"] * 1e-12 == pytest.approx(mended.time.seconds, rel=0.2)
    assert "small grid" not in kinds(mended)


def test_a_tail_wave():
    found = kinds(again(reading(4, 1), ctas=132 * 8 + 1, registers=255))["tail wave"]
    assert found["line"] is None
    assert "tail wave" not in kinds(again(reading(4, 1), ctas=132))


def test_blocks_of_one_warp():
    program = [made.load(4, 1, first=4), Op(Pipe.FMA, wait=1)]
    faulty, mended = again([program], ctas=16_384), again([program] * 8, ctas=2048)
    found = kinds(faulty)["small blocks"]
    assert "blocks of 256 threads" in found["hint"]
    assert faulty.time.seconds - found["cost_ps"] * 1e-12 == pytest.approx(mended.time.seconds, rel=0.15)
    assert "small blocks" not in kinds(mended)


def double(pipe: Pipe, converts: bool) -> Again:
    program = [*([Op(Pipe.MUFU)] * converts), Op(pipe), Op(pipe), Op(Pipe.BRANCH, back=2 + converts, turns=64)]
    return again([program] * 8, ctas=528)


def test_double_precision_between_numbers_of_32_bits():
    faulty = named(double(Pipe.DOUBLE, True), {0: "cvt.f64.f32"})
    assert "32 bits" in saves(faulty, double(Pipe.FMA, False), "double precision")["message"]
    assert "double precision" not in kinds(named(faulty, {1: "ld.global.f64"}))


def test_products_of_halves_on_cuda_cores():
    convert, add = Op(Pipe.CONVERT), Op(Pipe.FMA)
    faulty = again([[convert, convert, *[add] * 64, Op(Pipe.BRANCH, back=66, turns=32)]] * 8, ctas=264)
    opcodes = {0: "cvt.f32.bf16", 1: "cvt.f32.bf16", **dict.fromkeys(range(2, 66), "fma.rn.f32")}
    texts = {0: "cvt.f32.bf16 %f1, %rs1", 1: "{ cvt.f32.bf16 %f2, %rs2;}"}
    texts |= dict.fromkeys(range(2, 66), "fma.rn.f32 %f3, %f1, %f2, %f3")
    found = kinds(named(faulty, opcodes, texts))["products by fma"]
    # a product for each 64 additions of a warp
    product = Op(Pipe.MMA, mnk=(16, 8, 16), act=Act.MULTIPLY)
    mended = again([[product, Op(Pipe.BRANCH, back=1, turns=32)]] * 8, ctas=264)
    assert found["sure"] == "at most"
    assert faulty.time.seconds - found["cost_ps"] * 1e-12 == pytest.approx(mended.time.seconds, rel=0.15)
    assert "products by fma" not in kinds(faulty)
