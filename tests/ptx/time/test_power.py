"""The clock under power: it falls with the use of tensor cores and the length of the launch; the result says so."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.ptx.time.made import Act, Kind, Op, Pipe, launch

from kernbench.ptx.machine import load
from kernbench.ptx.time.chip.power import clock_under_power, settled_clock
from kernbench.ptx.time.launch import time_launch

H200 = load("h200")
PRODUCTS, SETTLED = float(H200.clock.products), float(H200.clock.settled)


@pytest.mark.parametrize(("seconds", "measured"), [(0.01212, 1694.0), (0.03727, 1649.9)])
def test_long_launches_of_products_have_the_clock_that_was_measured(seconds, measured):
    assert clock_under_power(H200, 1.0, seconds) == pytest.approx(measured, rel=0.001)


def test_a_short_launch_keeps_its_clock():
    assert clock_under_power(H200, 1.0, 50e-6) == pytest.approx(PRODUCTS, rel=0.001)


@settings(max_examples=sampled.examples(50, 100), deadline=None, derandomize=True)
@given(st.floats(0.001, 1), st.floats(0, 1), st.floats(1e-6, 1), st.floats(0, 1))
def test_more_use_and_more_time_never_raise_the_clock(use, more, seconds, longer):
    now = clock_under_power(H200, use, seconds)
    assert SETTLED - 1e-6 <= now <= PRODUCTS + 1e-6
    assert clock_under_power(H200, min(use + more, 1.0), seconds) <= now + 1e-6
    assert clock_under_power(H200, use, seconds + longer) <= now + 1e-6


def test_little_use_allows_the_clock_of_products():
    assert settled_clock(H200, 0.5) == PRODUCTS
    assert settled_clock(H200, 1.0) == SETTLED


def test_where_it_is_not_known_how_it_falls_the_clock_stays():
    for name in ("a100", "b200"):
        gpu = load(name)
        assert clock_under_power(gpu, 1.0, 1.0) == float(gpu.clock.products) <= float(gpu.clock.most)


def test_a_launch_states_the_clock_that_it_has():
    """Products that take milliseconds: the clock falls at once on a GPU that settles in a microsecond."""
    product = Op(Pipe.WGMMA, kind=Kind.WGMMA, mnk=(64, 256, 16), act=Act.MULTIPLY)
    commit = Op(Pipe.WGMMA, kind=Kind.WGMMA_COMMIT, event={"phase": 0})
    wait = Op(Pipe.CONTROL, kind=Kind.WGMMA_WAIT, event={"phase": 1})
    quick = H200.override({"clock.settles": 1000, "launch.first": 0})
    program = [*[product] * 64, commit, wait, Op(Pipe.FMA), Op(Pipe.CONTROL)]
    all_of_them, one = (launch([program] * 4, ctas=ctas) for ctas in (132, 1))
    heavy, light = (time_launch(*made, quick) for made in (all_of_them, one))
    assert SETTLED < heavy.clock_mhz < 0.97 * PRODUCTS
    assert any("the clock falls to" in note for note in heavy.notes)
    # one SM of 132 takes little power
    assert (light.clock_mhz, light.notes) == (PRODUCTS, tuple(note for note in light.notes if "clock" not in note))
    assert heavy.seconds > time_launch(*all_of_them, H200.override({"clock.settles": 0, "launch.first": 0})).seconds
