"""What stores leave to be waited for: fences, reads of bulk stores, sectors stored in part; warps that take turns."""

from dataclasses import replace

import numpy as np
import pytest
from tests.ptx.time.made import Act, Kind, Op, Pipe, launch, load
from tests.ptx.time.test_engine import END, H200, cycles

from kernbench.ptx.time import Unit
from kernbench.ptx.time.launch import time_launch

FENCE = Op(Pipe.FENCE, kind=Kind.PROXY_FENCE, mnemonic="FENCE.VIEW.ASYNC.S")
STORE = Op(
    Pipe.SHARED, kind=Kind.SHARED_STORE, act=Act.STORE, width=16,
    event={"wavefronts": 4, "lanes": 32, "bytes": 512},
)  # fmt: skip


@pytest.mark.parametrize(("stores", "measured"), [(1, 29), (4, 50), (8, 82), (16, 156)])
def test_a_fence_waits_for_stores_to_shared_memory(stores, measured):
    """`fence.stores` of one warp on an H200, less the fence without stores."""
    after = cycles([[*[STORE] * stores, FENCE, END]]) - cycles([[FENCE, END]])
    assert after == pytest.approx(measured, rel=0.15)


def test_loads_are_not_waited_for_by_a_fence():
    load = replace(STORE, kind=Kind.SHARED_LOAD, act=Act.LOAD, write=0)
    assert cycles([[load, FENCE, END]]) < cycles([[STORE, FENCE, END]])


def test_warps_of_a_sub_core_issue_in_turn():
    program = [[Op(Pipe.FMA)] * 100 + [END]] * 8
    followed = time_launch(*launch(program), H200).followed
    ends = [followed.issued[followed.warp == warp].max() for warp in (0, 4)]
    assert ends[1] - ends[0] <= 2


def bulk_store(wait: str) -> float:
    nbytes = 8192
    event = {"sectors": nbytes // 32, "lines": nbytes // 128, "bytes": nbytes, "lanes": 1, "first": nbytes // 32}
    ops = [
        Op(Pipe.BULK, kind=Kind.BULK_STORE, act=Act.STORE, event=event),
        Op(Pipe.CONTROL, kind=Kind.BULK_COMMIT), Op(Pipe.CONTROL, kind=Kind.BULK_WAIT, event={"phase": 1}), END,
    ]  # fmt: skip
    recording, streams = launch([ops])
    named = replace(recording.instructions, opcode=(wait,))
    followed = time_launch(replace(recording, instructions=named), streams, H200).followed
    return float(followed.issued[-1] - followed.issued[0])


def test_what_is_read_for_a_bulk_store_is_waited_for_less_long_than_what_it_writes():
    """`fence.bulk` of 8 KiB on an H200: 373 cycles with a barrier of 4 warps and a loop."""
    read, written = bulk_store("cp.async.bulk.wait_group.read"), bulk_store("cp.async.bulk.wait_group")
    assert written - read == pytest.approx(float(H200.l2.latency), rel=0.1)
    assert read == pytest.approx(340, rel=0.2)


def of_memory(kind: Kind, act: Act, first: float, ctas: int = 2112) -> float:
    """Bytes of the data sheet's bandwidth that a word of its own line takes, by all SMs."""
    event = {"sectors": 32, "lines": 32, "lanes": 32, "bytes": 128, "first": first, "other": 32 - first}
    event |= {"other_distance": 28.0, "wavefronts": 32}
    write = 0 if kind == Kind.GLOBAL_LOAD else 7
    one = Op(Pipe.GLOBAL, kind=kind, event=event, act=act, write=write)
    time = time_launch(*launch([[one] * 8 + [END]] * 8, ctas=ctas), H200)
    seconds = time.cycles / (time.clock_mhz * 1e6)
    return float(seconds * float(H200.hbm.bandwidth) * 1e9 / (ctas * 8 * 8 * 32))


def test_words_that_memory_has_cost_what_was_measured():
    """Of words alone in their lines (`scattered` and `random.words` beyond L2): loads 80 to 123 bytes, stores 220 to
    322, atomics without a result 296.
    """
    load = of_memory(Kind.GLOBAL_LOAD, Act.LOAD, 32)
    assert load == pytest.approx(95, rel=0.25)
    assert of_memory(Kind.GLOBAL_STORE, Act.STORE, 32) == pytest.approx(250, rel=0.25)
    assert of_memory(Kind.GLOBAL_REDUCTION, Act.REDUCTION, 32) > 1.5 * load


@pytest.mark.parametrize(("distance", "part"), [(24.5, 30 / 64), (25.4, 0.0)])
def test_of_a_table_that_is_read_at_random_l2_holds_its_part_and_of_one_that_is_read_in_turn_nothing(distance, part):
    """64 MiB, each word touched four times: a part of 30 MiB of the further touches is there, and where all of the
    table was touched since (`strided-copy-33`, by a profiler's count) nothing.
    """
    touches, table = 4, 64 << 20
    first = 32 * (1 - np.exp(-touches)) / touches
    ctas = table // 32 * touches // (32 * 8 * 8)
    event = {"sectors": 32, "lines": 32, "lanes": 32, "bytes": 128, "first": first, "other": 32 - first}
    one = Op(Pipe.GLOBAL, kind=Kind.GLOBAL_LOAD, event={**event, "other_distance": distance}, act=Act.LOAD, write=0)
    read = time_launch(*launch([[one] * 8 + [END]] * 8, ctas=ctas), H200).traffic.hbm_read
    every = ctas * 8 * 8 * 32
    missed = every * (first + (32 - first) * (1 - part)) / 32
    assert read == pytest.approx(missed * 64, rel=0.02)


@pytest.mark.parametrize(("own", "distance", "faster"), [(32, 13, True), (32, 24, False), (16, 13, False)])
def test_halves_of_sectors_that_are_stored_one_after_the_other_are_not_read(own, distance, faster):
    """`cold.pieces` on an H200: L2 puts together what comes soon and fills the sector, and nothing else."""

    def taken(second) -> float:
        event = {"sectors": 32, "lines": 16, "lanes": 32, "bytes": 512}
        stores = [event | {"first": 32}, event | second]
        ops = [Op(Pipe.GLOBAL, kind=Kind.GLOBAL_STORE, act=Act.STORE, width=16, event=one) for one in stores]
        return cycles([[*ops, END]] * 8, ctas=132 * 16)

    apart = taken({"first": 32})
    found = taken({"own": own, "own_distance": distance, "other": 32 - own, "other_distance": 1})
    assert (found < 0.48 * apart) is faster


def test_a_line_that_comes_from_memory_is_looked_up_twice_in_l2():
    """Words apart, of lines that are there and that are not: what L2 works, as a profiler counts its lookups."""

    def taken(first: int) -> float:
        event = {"sectors": 32, "lines": 32, "lanes": 32, "bytes": 128, "first": first, "other": 32 - first}
        one = Op(Pipe.GLOBAL, kind=Kind.GLOBAL_LOAD, event={**event, "other_distance": 20}, act=Act.LOAD, write=0)
        time = time_launch(*launch([[one] * 8 + [END]] * 8, ctas=132 * 16), H200)
        return time.busy[Unit.L2] * time.cycles

    there, missed = (taken(first) for first in (0, 32))
    assert missed == pytest.approx(2 * there, rel=0.01)


@pytest.mark.parametrize("others", range(1, 7))
def test_what_other_warps_load_has_no_say_in_which_loads_of_a_warp_miss(others):
    """One load in twenty waits for memory: the same ones, however many another warp makes before."""

    def slowest(before: int) -> float:
        rare = load(first=0.002, other=3.998, wait=1)
        beside = [load(first=0.002, other=3.998, stall=15)] * before
        return cycles([[*[rare] * 24, END], [*beside, END]], ctas=132)

    assert slowest(others) == pytest.approx(slowest(0), rel=0.02)


@pytest.mark.parametrize(("times", "share"), [(0.9, 1.0), (1.5, 0.58), (2.0, 0.16), (3.0, 0.0)])
def test_l1_holds_less_and_less_of_what_was_touched_longer_ago(times, share):
    """`l1.together` on an H200: of bytes that are read again, 58 to 70 % at one and a half times the size of L1, 13 to
    20 % at twice, nothing at three times.
    """
    again = load(own=4)
    distance = np.log2(times * 256 * 1024)
    recording, streams = launch([[replace(again, event=again.event | {"own_distance": distance}), END]] * 4)
    asked = time_launch(recording, streams, H200).traffic.l2
    assert 1 - asked / (4 * 128) == pytest.approx(share, abs=0.02)


def stored_again(stored: float, **given) -> Op:
    """A store of whole sectors that the CTA touched before, of which so many were stored to."""
    event = {"sectors": 16, "lines": 4, "lanes": 32, "bytes": 512, "own": 16, "own_distance": 14, "stored": stored}
    return Op(Pipe.GLOBAL, kind=Kind.GLOBAL_STORE, act=Act.STORE, width=16, event=event | given)


def test_what_is_stored_to_again_is_written_to_memory_once():
    """4 MiB, each sector stored to sixteen times: L2 holds them, and memory writes each of them once."""
    first = stored_again(0, first=16, own=0)
    program = [[first, *[stored_again(16)] * 15, END]] * 8
    ctas = (4 << 20) // (8 * 512)
    time = time_launch(*launch(program, ctas=ctas), H200)
    assert time.traffic.hbm_written == 4 << 20
    # and a memory that is slow has little to do with it
    slow = H200.override({"hbm.bandwidth": "500 GB/s"})
    assert time_launch(*launch(program, ctas=ctas), slow).cycles < 1.3 * time.cycles


def test_what_was_loaded_and_is_stored_gets_dirty_whether_its_sectors_are_filled_or_not():
    loaded = load(sectors=16, lines=16, first=16, wait=1)
    words = {"sectors": 16, "lines": 16, "lanes": 16, "bytes": 64, "own": 16, "own_distance": 9}
    stores = Op(Pipe.GLOBAL, kind=Kind.GLOBAL_STORE, act=Act.STORE, event=words)
    again = replace(stores, event=words | {"stored": 16})
    time = time_launch(*launch([[loaded, stores, again, again, END]], ctas=132), H200)
    assert time.traffic.hbm_written == 132 * 16 * 32


def test_what_left_l2_since_it_was_stored_to_is_written_again():
    far = {"own": 0, "other": 16, "other_distance": 30}
    time = time_launch(*launch([[stored_again(0, first=16, own=0), stored_again(16, **far), END]], ctas=64), H200)
    assert time.traffic.hbm_written == 2 * 64 * 512


def local(nbytes: int) -> tuple[float, int]:
    """Cycles of a warp that loads from local memory of so many bytes a thread, and bytes asked of L2."""
    event = {"sectors": 4, "lines": 1, "lanes": 32, "bytes": 128}
    one = Op(Pipe.LOCAL, kind=Kind.LOCAL_LOAD, act=Act.LOAD, event=event, write=0, wait=1)
    recording, streams = launch([[*[one] * 50, END]] * 4)
    time = time_launch(replace(recording, local_bytes=nbytes), streams, H200)
    return time.cycles - float(H200.launch.first), time.traffic.l2


def test_loads_of_local_memory_are_answered_by_l1_where_it_holds_that_of_the_cta():
    """256 bytes a thread are 32 KiB of the CTA; 8 KiB a thread are 1 MiB, and none of it stays there."""
    (near, asked), (far, everything) = local(256), local(8192)
    assert (asked, everything) == (0, 4 * 50 * 128)
    assert near == pytest.approx(50 * float(H200.l1.latency), rel=0.15)
    assert far > 5 * near


def test_local_memory_that_is_stored_to_over_and_over_is_as_large_as_it_is():
    event = {"sectors": 4, "lines": 1, "lanes": 32, "bytes": 128}
    one = Op(Pipe.LOCAL, kind=Kind.LOCAL_STORE, act=Act.STORE, event=event)
    recording, streams = launch([[*[one] * 100, END]] * 4, ctas=264)
    time = time_launch(replace(recording, local_bytes=64), streams, H200)
    assert time.traffic.hbm_written == pytest.approx(264 * 128 * 64, rel=0.01)
