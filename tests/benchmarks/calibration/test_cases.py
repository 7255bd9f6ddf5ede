"""Microbenchmarks: their kernels are right and safe on the emulator, and say apart what they measure."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.calibration.case import Case, Data
from benchmarks.calibration.cold import APART, BLOCK, UNROLL, grid_of, sparse_text, text, words_text
from benchmarks.calibration.emulated import emulate, problem
from benchmarks.calibration.registry import FAMILIES, cases
from benchmarks.calibration.source import Source
from tests import sampled

from kernbench import ptx

ALL = list(cases())
LONGEST = 60_000


def some_of_each() -> list[Case]:
    """A kernel of every fifth benchmark, with --full all; so does `python -m benchmarks.calibration check`."""
    different = {(case.source.text, case.block): case for case in ALL if len(case.source.text) < LONGEST}
    one_of_each = sampled.some(list(different.values()), 1, kind=lambda case: case.benchmark)
    return sampled.some(one_of_each, len(one_of_each) // 5)


@pytest.mark.parametrize("case", some_of_each(), ids=lambda case: case.name)
def test_a_kernel_is_right_and_safe(case):
    assert problem(case) == ""


def one_of_each_grid() -> list[Case]:
    """The first case of every third benchmark that has a CTA for every SM; with --full of each, and of each way in
    which it moves bytes.
    """
    chosen: dict[tuple[str, object], Case] = {}
    for case in ALL:
        if case.grid == 0 and case.ctas(132) * case.block <= 300_000 and case.benchmark != "clock.tensor":
            chosen.setdefault((case.benchmark, case.parameters.get("by", case.parameters.get("spread"))), case)
    one_of_each = sampled.some(list(chosen.values()), 1, kind=lambda case: case.benchmark)
    return sampled.some(one_of_each, len(one_of_each) // 3)


@pytest.mark.parametrize("case", one_of_each_grid(), ids=lambda case: case.name)
def test_with_a_cta_for_every_sm_addresses_stay_inside_the_memory(case):
    run, _ = emulate(case, sms=132)
    assert run.safe, run.findings[0].message


def test_a_kernel_that_is_wrong_or_unsafe_is_seen():
    right = next(case for case in ALL if case.name == "latency.fma[unroll=32]")
    assert "expected" in problem(replace(right, expected=np.zeros(32, np.uint32)))
    racing = Source("racing", "st.shared.u32 [tile], %thread;", outside=".shared .b32 tile[1];")
    assert "race" in emulate(replace(right, source=racing, expected=None, block=64))[0].checked
    assert problem(replace(right, source=racing, expected=None, block=64))


def test_names_are_different_and_counts_of_turns_too():
    assert len({case.name for case in ALL}) == len(ALL)
    for case in ALL:
        assert case.turns[0] < case.turns[1] or case.benchmark in ("launch.starts", "launch.waves")
        assert case.work > 0


def test_every_family_has_cases():
    for family in FAMILIES:
        # kernels of a cold cache are launched one by one
        assert list(cases([family])) or family == "cold"


@pytest.mark.parametrize("act", ["load", "store", "red"])
def test_words_at_random_are_each_touched_once(act):
    device, words = ptx.EmulatedDevice("sm_90a"), 4096
    data = device.array(np.zeros(words, np.uint32), "data")
    run = device.launch(ptx.parse(words_text(act)).kernels["words"], words // 256, 256, [data, words - 1])
    assert run.safe, run.findings
    found = data.numpy()
    expected = {"load": np.zeros, "store": lambda n, _: np.arange(n), "red": np.ones}[act](words, np.uint32)
    assert (found == expected).all()


@pytest.mark.parametrize(
    ("nbytes", "stride"), [(4096, 128), (16 << 10, 128), (48 << 10, 128), (1 << 20, 65536), (128, 128)]
)
def test_a_chase_visits_every_place(nbytes, stride):
    data = Data(nbytes, "chase", stride)
    words, place, seen = data.words(), 0, set()
    for _ in range(data.places):
        seen.add(place)
        place = int(words[place // 4])
    assert place == 0
    assert len(seen) == data.places


def test_reads_and_copies_stay_inside_what_they_are_given():
    for case in ALL:
        if case.small_source is not None:
            assert case.small_source.name != case.source.name or case.small_source == case.source
            assert (case.small_data or case.data).nbytes <= 1 << 20


@pytest.mark.parametrize("act", ["read", "write"])
def test_what_is_read_or_written_once_is_the_whole_memory_and_no_more(act):
    device = ptx.EmulatedDevice("sm_90a")
    nbytes = 1 << 18
    data = device.array(np.zeros(nbytes // 4, np.uint32))
    ctas, turns = grid_of(nbytes, 3)
    assert ctas * turns * BLOCK * UNROLL * 16 == nbytes
    run = device.launch(ptx.parse(text(act)).kernels[act], ctas, BLOCK, [data, turns])
    assert run.safe, run.findings


@pytest.mark.parametrize("act", ["read", "copy"])
def test_kernels_with_little_under_way(act):
    """What is written lies so far from what is read that no test has memory for it: the text says another distance."""
    device, given = ptx.EmulatedDevice("sm_90a"), np.arange(4096, dtype=np.uint32)
    apart, written = sparse_text(act, 32, 2).replace(str(APART), str(8192)), act == "copy"
    data = device.array(np.concatenate([given[:2048], np.zeros(2048, np.uint32)]), "data")
    run = device.launch(ptx.parse(apart).kernels[act], 2, 32, [data, 4])
    assert run.safe, run.findings
    assert (data.numpy()[2048:] == (given[:2048] if written else 0)).all()
