"""Grids of which some clusters are run: which ones, and how near their times are to those of whole grids."""

from functools import cache, partial

import numpy as np
import pytest
from benchmarks.truth.predict import Part, SamplingDevice, recorded
from benchmarks.truth.sampling import MOST_SPREAD, RUN, Way, extended, sample, uneven
from tests import sampled
from tests.ptx.time.made import Op, Pipe, launch, load

from kernbench import ptx
from kernbench.ptx.machine import load as machine
from kernbench.ptx.sass.join.making import streams_of
from kernbench.ptx.time.launch import time_launch

CTAS, MOST = 1024, 192
# turns of a loop by a table, a number for each block; shared memory leaves room for two blocks in an SM
TURNS = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry turns(.param .u64 p_table, .param .u64 p_out)
{
.reg .pred %p;
.reg .b32 %r<6>;
.reg .f32 %f<3>;
.reg .b64 %d<6>;
ld.param.u64 %d0, [p_table];
ld.param.u64 %d1, [p_out];
cvta.to.global.u64 %d0, %d0;
cvta.to.global.u64 %d1, %d1;
mov.u32 %r0, %ctaid.x;
mov.u32 %r1, %tid.x;
mad.lo.s32 %r2, %r0, 32, %r1;
mul.wide.u32 %d2, %r0, 4;
add.s64 %d0, %d0, %d2;
mul.wide.u32 %d3, %r2, 4;
add.s64 %d1, %d1, %d3;
ld.global.u32 %r3, [%d0];
mov.f32 %f0, 0f3F800000;
mov.f32 %f1, 0f3F000000;
again:
fma.rn.f32 %f0, %f0, %f1, %f1;
fma.rn.f32 %f0, %f0, %f1, %f1;
fma.rn.f32 %f0, %f0, %f1, %f1;
fma.rn.f32 %f0, %f0, %f1, %f1;
sub.s32 %r3, %r3, 1;
setp.gt.s32 %p, %r3, 0;
@%p bra again;
st.global.f32 [%d1], %f0;
ret;
}
"""
AT = np.arange(CTAS)
TABLES = {
    "even": np.full(CTAS, 40),
    "linear": 1 + AT // 8,
    "falling": 128 - AT // 8,
    "random": 1 + (AT * 2654435761 >> 9) % 96,
    # most need few, some in the middle need all there are
    "escapes": np.where(np.abs(AT - CTAS // 2) < CTAS // 6, 128, 1 + AT % 7),
    "by column": 1 + 3 * (AT % 64),
}
# an even grid has a test of its own below, one that rises is part of two others. With --full all
FEW_TABLES = ("escapes",)


@cache
def whole_of(kind):
    """The whole grid of one kind, recorded once."""
    return recorded(partial(parts, TABLES[kind], CTAS))


def parts(table, most, way):
    device = SamplingDevice("sm_90a", most, way)
    given = [device.array(table.astype(np.uint32)), device.array(np.zeros(32 * CTAS, np.float32))]
    kernel = ptx.parse(TURNS).kernels["turns"]
    return [device.recorded(kernel, CTAS, 32, given, 100_000)[1]]


def seconds(taken):
    recording = taken[0].recording
    return time_launch(recording, streams_of(recording, "sm_90a", use_tools=False), machine("h200")).seconds


@pytest.mark.parametrize("kind", list(TABLES) if sampled.full() else FEW_TABLES)
def test_a_part_of_an_uneven_grid_takes_as_long_as_the_whole(kind):
    whole = whole_of(kind)
    some = recorded(partial(parts, TABLES[kind], MOST))
    assert not whole[0].ran
    assert some[0].ran["of"] == CTAS
    assert some[0].ran["clusters"] <= MOST
    assert seconds(some) == pytest.approx(seconds(whole), rel=0.06)


def test_the_first_of_an_uneven_grid_would_not():
    """What stands above is no accident of the model: the first blocks alone have a fraction of the work."""
    for kind in ("linear", "escapes"):
        first = parts(TABLES[kind], MOST, Way.FIRST)[0].whole(Way.FIRST)
        assert seconds([first]) < 0.8 * seconds(whole_of(kind))


def test_an_even_grid_is_timed_by_its_first_blocks_as_ever():
    taken = recorded(partial(parts, TABLES["even"], MOST))[0]
    assert taken.ran == {"clusters": MOST, "of": CTAS, "way": "first"}
    first = parts(TABLES["even"], MOST, Way.FIRST)[0].recording
    assert np.array_equal(taken.recording.cta_class, first.cta_class[AT % MOST])
    for name in taken.recording.events.__slots__:
        assert np.array_equal(getattr(taken.recording.events, name), getattr(first.events, name)), name
    assert recorded(partial(parts, TABLES["linear"], MOST))[0].ran["way"] == "spread"


@pytest.mark.parametrize("way", list(Way))
@pytest.mark.parametrize(("count", "most", "size"), [(5, 4, 1), (33, 32, 1), (1000, 256, 1), (4097, 4096, 1),
                                                      (100_003, 4096, 1), (1000, 64, 4), (70, 65, 16)])  # fmt: skip
def test_every_cluster_has_one_that_stands_for_it(way, count, most, size):
    taken = sample(way, count, most, size)
    chosen = np.array(taken.chosen)
    assert len(chosen) <= most
    assert (np.diff(chosen) > 0).all()
    assert chosen[0] >= 0
    assert chosen[-1] < count
    assert len(taken.stands) == count
    assert np.isin(taken.stands, chosen).all()
    assert np.array_equal(taken.stands[chosen], chosen)
    if way is not Way.FIRST:
        # nobody is far away: the next but one part of the grid at most
        spread = min(most, MOST_SPREAD)
        parts_of_grid = len(chosen) if way is Way.PROBE else max(spread // max(RUN // size, 1), 1)
        assert np.abs(taken.stands - np.arange(count)).max() <= 2 * count / parts_of_grid


def test_ctas_of_a_cluster_stay_together():
    end = Op(Pipe.CONTROL)
    kinds = [[[load(), end]], [[load(), load(), end]], [[load(), end, end]], [[end]]]
    recording, _ = launch([], ctas=12, classes=kinds, cluster=2)
    whole = extended(recording, sample(Way.FIRST, 6, 2, 2))
    assert whole.cta_class.tolist() == recording.cta_class[:4].tolist() * 3


def test_blocks_that_do_not_end_without_others_are_not_taken():
    """Where blocks from all over the grid wait for those before them, the first ones serve."""
    first, probe = parts(TABLES["linear"], MOST, Way.FIRST), parts(TABLES["linear"], MOST, Way.PROBE)
    stuck = [Part(None, part.sample) for part in probe]
    assert recorded(lambda way: first if way is Way.FIRST else stuck)[0].ran["way"] == "first"
    late = {Way.FIRST: first, Way.PROBE: probe, Way.SPREAD: stuck}
    assert recorded(lambda way: late[way])[0].ran["way"] == "first"
    with pytest.raises(RuntimeError, match="did not come to an end"):
        recorded(lambda way: stuck)


def test_little_differences_are_none():
    assert not uneven(np.array([100.0, 50.0, 0.0]), np.array([100.9, 50.0, 0.0]))
    assert uneven(np.array([100.0, 50.0, 0.0]), np.array([100.0, 51.0, 0.0]))
    assert uneven(np.array([100.0, 50.0, 0.0]), np.array([100.0, 50.0, 4.0]))
