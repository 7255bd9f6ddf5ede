"""Where the time went: each planted situation shows in its own cause and only there, and it always adds up."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench import machine, mesh
from kernbench.bench import find, run_bench
from kernbench.mesh.time import CAUSES, measure, summary, time_recording

REFERENCE = machine.load("reference")
# dispatch takes no time, so that it hides in no other cause
FREE = REFERENCE.override({"pe.dispatch_cycles": 0})
BENCH = find("milestone_gqa_llama70b")
# one [64, 64] @ [64, 64] product of f16: MACs at the peak, and filling and draining the array; zeros(64, 64); a message
PEAK, ARRAY, ZEROS, MESSAGE, HOP = 64_000, 126_000, 32_000, 64_000, 20_000


def timed(kernel, ranks=1, described=FREE):
    host = mesh.Host(described, ranks=ranks, shapes_only=True)
    run = host.launch(kernel, host.empty((ranks * 64, 64), "f16", axis=0))
    assert run.safe, run.findings
    return time_recording(run.recording, described)


def gap_of(timing):
    """The causes that there are, checked to add up."""
    told = summary(timing)
    assert tuple(told["gap_ps"]) == CAUSES
    assert told["floors_ps"][told["bound"]] + sum(told["gap_ps"].values()) == told["time_ps"] == timing.total_ps
    return told["bound"], {cause: time for cause, time in told["gap_ps"].items() if time}


def tile(tl):
    return tl.zeros((64, 64), "f16")


def dots(tl, count):
    a = tile(tl)
    for _ in range(count):
        tl.dot(a, a)


def test_one_product_fills_and_drains():
    def kernel(x_ptr, *, tl):
        dots(tl, 1)

    assert gap_of(timed(kernel)) == ("compute", {"fill and drain": ZEROS, "array fill and drain": ARRAY})


def test_the_last_result_drains():
    def kernel(x_ptr, *, tl):
        a = tile(tl)
        tl.store(x_ptr, tl.dot(a, a, out_dtype="f16"))

    store = 300_000 + 16_000
    assert gap_of(timed(kernel)) == (
        "compute",
        {"fill and drain": ZEROS + store, "array fill and drain": ARRAY},
    )


def test_small_products_leave_cells_unused():
    def kernel(x_ptr, *, tl):
        a = tl.zeros((16, 64), "f16")
        b = tile(tl)
        tl.dot(a, b)

    filling = ZEROS + ZEROS // 4
    assert gap_of(timed(kernel)) == (
        "compute",
        {"fill and drain": filling, "array fill and drain": ARRAY, "unused cells": PEAK * 3 // 4},
    )


@pytest.mark.parametrize("counts", [(4, 4), (6, 2), (2, 6), (7, 1)])
def test_an_uneven_pair_is_imbalance(counts):
    def kernel(x_ptr, *, tl):
        dots(tl, counts[tl.program_id(0)])

    bound, gap = gap_of(timed(kernel, 2))
    more = (max(counts) - 4) * (PEAK + ARRAY)
    assert bound == "compute"
    assert gap.pop("imbalance", 0) == more
    assert gap == {"fill and drain": ZEROS, "array fill and drain": 4 * ARRAY}


def test_a_product_sent_there_and_back_is_exposed_communication():
    def kernel(x_ptr, *, tl):
        a = tile(tl)
        if tl.program_id(0) == 0:
            tl.send(dir="E", src=tl.dot(a, a, out_dtype="f16"))
            tl.dot(tl.recv(dir="E", shape=(64, 64), dtype="f16"), a)
        else:
            tl.dot(a, a)
            tl.dot(a, a)
            tl.send(dir="W", src=tl.recv(dir="W", shape=(64, 64), dtype="f16"))

    assert gap_of(timed(kernel, 2)) == (
        "compute",
        {"fill and drain": ZEROS, "array fill and drain": 2 * ARRAY, "exposed communication": 2 * (MESSAGE + HOP)},
    )


def test_a_serial_chain_of_messages_is_exposed_communication():
    ranks = 4

    def kernel(x_ptr, *, tl):
        rank = tl.program_id(0)
        if rank == 0:
            tl.send(dir="E", src=tile(tl))
        else:
            token = tl.recv(dir="W", shape=(64, 64), dtype="f16")
            if rank < ranks - 1:
                tl.send(dir="E", src=token)

    bound, gap = gap_of(timed(kernel, ranks))
    assert bound == "link"
    # the floor is one link; the other two and all hops are exposed
    assert gap == {"fill and drain": ZEROS, "exposed communication": 2 * MESSAGE + 3 * HOP}


def test_a_shallow_queue_is_queue_stalls():
    def kernel(x_ptr, *, tl):
        if tl.program_id(0) == 0:
            a = tile(tl)
            for _ in range(6):
                tl.send(dir="E", src=a)
        else:
            for _ in range(6):
                tl.recv(dir="W", shape=(64, 64), dtype="f16")

    shallow, deep = (gap_of(timed(kernel, 2, FREE.override({"ipcq.depth": depth}))) for depth in (1, 6))
    ends = {"fill and drain": ZEROS, "exposed communication": HOP}
    assert deep == ("link", ends)
    # each message but the first waits until the one before it has arrived
    assert shallow == ("link", ends | {"queue stalls": 5 * HOP})


def test_a_stream_of_small_commands_is_dispatch():
    slow = FREE.override({"pe.dispatch_cycles": 1000})

    def kernel(x_ptr, *, tl):
        dots(tl, 10)

    free, dear = gap_of(timed(kernel)), gap_of(timed(kernel, 1, slow))
    assert free == ("compute", {"fill and drain": ZEROS, "array fill and drain": 10 * ARRAY})
    # each product waits for its dispatch but for the time of the one before; zeros hide behind the first
    waits = 2 * 1_000_000 + 9 * (1_000_000 - PEAK - ARRAY)
    assert dear == ("compute", {"array fill and drain": 10 * ARRAY, "dispatch": waits})


def test_loads_between_products_are_hbm_waits():
    def kernel(x_ptr, *, tl):
        a = tile(tl)
        kept = []
        for _ in range(3):
            kept.append(tl.load(x_ptr, shape=(64, 64), dtype="f16"))
            tl.dot(kept[-1], a)

    one_channel = FREE.override({"dma.channels": 1, "hbm.bandwidth": 1024})
    load = 300_000 + 8_000
    bound, gap = gap_of(timed(kernel, 1, one_channel))
    assert bound == "compute"
    assert gap == {
        "fill and drain": load,
        "HBM waits": 2 * (load - PEAK - ARRAY),
        "array fill and drain": 3 * ARRAY,
    }


def test_math_between_products_is_other_engines():
    def kernel(x_ptr, *, tl):
        a = tile(tl)
        for _ in range(3):
            a = tl.dot(a, a, out_dtype="f16") + 1.0

    bound, gap = gap_of(timed(kernel))
    assert bound == "compute"
    assert gap == {"fill and drain": 2 * ZEROS, "other engines": 2 * ZEROS, "array fill and drain": 3 * ARRAY}


def test_waiting_for_what_a_neighbour_computes():
    def kernel(x_ptr, *, tl):
        a = tile(tl)
        if tl.program_id(0) == 0:
            tl.send(dir="E", src=tl.dot(a, a, out_dtype="f16"))
        else:
            tl.dot(tl.recv(dir="W", shape=(64, 64), dtype="f16"), a)

    bound, gap = gap_of(timed(kernel, 2))
    assert bound == "compute"
    assert gap == {
        "other PEs": ZEROS + PEAK + ARRAY,
        "exposed communication": MESSAGE + HOP,
        "array fill and drain": ARRAY,
    }


def test_exponentials_wait_for_other_math():
    def kernel(x_ptr, *, tl):
        tl.exp(tl.zeros((64, 64)))

    assert gap_of(timed(kernel)) == ("exp", {"other math": ZEROS})


def test_memory_waits_for_its_latency():
    def kernel(x_ptr, *, tl):
        for _ in range(3):
            tl.load(x_ptr, shape=(64, 64), dtype="f16")

    one_channel = FREE.override({"dma.channels": 1})
    assert gap_of(timed(kernel, 1, one_channel)) == ("hbm", {"fill and drain": 300_000, "HBM waits": 600_000})


def test_nothing_took_no_time():
    def kernel(x_ptr, *, tl):
        pass

    assert gap_of(timed(kernel)) == ("compute", {})


SMALL = {"context": 48, "d_head": 32, "h_q": 8, "h_kv": 2, "lengths": ()}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("panel", list(BENCH.panels))
@pytest.mark.parametrize("changes", [{}, {"link.bandwidth": 2}, {"hbm.bandwidth": 2}, {"math.per_cycle.exp": 0.5}])
def test_panels_add_up_whatever_binds_them(panel, changes):
    recording = run_bench(BENCH, panel, SMALL).recording
    bound, gap = gap_of(time_recording(recording, REFERENCE.override(changes)))
    assert all(time > 0 for cause, time in gap.items() if cause != "rounding")
    # a transfer's end is rounded up to a whole picosecond
    assert 0 <= gap.get("rounding", 0) <= len(recording.streams) * 100 if bound == "hbm" else "rounding" not in gap


@pytest.mark.parametrize("panel", list(BENCH.panels))
def test_the_panels_add_up_at_their_own_size(panel):
    run = run_bench(BENCH, panel, {}, shapes_only=True)
    gap_of(time_recording(run.recording, REFERENCE))


ACTIONS = st.sampled_from(["load", "dot", "exp", "add", "store", "east", "west"])


@settings(max_examples=sampled.examples(30, 60))
@given(
    st.lists(st.tuples(ACTIONS, st.integers(0, 7)), max_size=12),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([0, 8, 333]),
    st.sampled_from([1, 3]),
)
def test_any_program_adds_up(actions, depth, dispatch, channels):
    """Three PEs; an action is done by those its number has a bit for, a message by a pair."""

    def kernel(x_ptr, *, tl):
        rank = tl.program_id(0)
        value = tile(tl)
        for action, who in actions:
            if action in ("east", "west"):
                pair = (who % 2, who % 2 + 1)
                sender, receiver = pair if action == "east" else pair[::-1]
                if rank == sender:
                    tl.send(dir="E" if action == "east" else "W", src=value)
                elif rank == receiver:
                    value = tl.recv(dir="W" if action == "east" else "E", shape=(64, 64), dtype="f16")
            elif who >> rank & 1:
                value = act(tl, action, x_ptr, value)

    def act(tl, action, x_ptr, value):
        if action == "load":
            return tl.load(x_ptr, shape=(64, 64), dtype="f16")
        if action == "store":
            tl.store(x_ptr, value)
            return value
        return {"dot": lambda v: tl.dot(v, v, out_dtype="f16"), "exp": tl.exp, "add": lambda v: v + 1.0}[action](value)

    described = REFERENCE.override({"ipcq.depth": depth, "pe.dispatch_cycles": dispatch, "dma.channels": channels})
    _, gap = gap_of(timed(kernel, 3, described))
    assert all(time > 0 for time in gap.values())


def test_achieved_rates_are_amounts_over_the_time_and_peaks_those_of_the_parts_used():
    run = run_bench(BENCH, "multi_user_prefill", SMALL)
    timing = time_recording(run.recording, REFERENCE)
    rates = measure(timing)["rates"]
    amounts = {name: rate["amount"] for name, rate in rates.items()}
    assert amounts["gemm"] == run.metrics["flops"]
    assert amounts["hbm"] == run.metrics["load_bytes"] + run.metrics["store_bytes"]
    assert amounts["link"] == run.metrics["send_bytes"]
    for rate in rates.values():
        assert rate["achieved"] == pytest.approx(rate["amount"] / timing.total_ps * 1e12)
        assert 0 < rate["achieved"] <= rate["peak"]
    programs = len(run.recording.streams)
    cubes = len({s.cube for s in run.recording.streams})
    assert rates["gemm"]["peak"] == programs * 2 * 64 * 64 * 1e9
    assert rates["exp"]["peak"] == programs * 16e9
    assert rates["hbm"]["peak"] == cubes * 512e9


def test_operations_of_each_kind_are_counted():
    def kernel(x_ptr, *, tl):
        a = tl.zeros((64, 64))
        tl.sum(a, axis=1)
        tl.softmax(a)
        tl.exp(a)

    rates = measure(timed(kernel))["rates"]
    assert rates["math"]["amount"] == 4096 * (1 + 1 + 5 + 1)
    assert rates["exp"]["amount"] == 4096 * 2
    assert set(rates) == {"math", "exp"}
