"""Iterations that are computed several at once give what running every iteration gives, to the bit."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.mesh.test_folding_values import same

from kernbench.safety.memory import WINDOW
from kernbench.triton_emu.stacking import stack
from kernbench.triton_emu.stacking.stack import Stack

BYTES = 16 * 16 * 4
pytestmark = pytest.mark.usefixtures("small_heap", "short_loops_inside")


@pytest.fixture
def together(monkeypatch):
    """How many iterations were computed at once, each time."""
    counts = []
    compute = Stack.compute

    def counted(self, slots, count):
        done = compute(self, slots, count)
        if done:
            counts.append(count)
        return done

    monkeypatch.setattr(Stack, "compute", counted)
    monkeypatch.setattr(stack, "_PLANS", {})
    return counts


def tiles(x, y, n, *, tl):
    """Each kind of operation, on tiles of which no iteration needs another one's."""
    table = tl.load(x + 400 * BYTES, shape=(16, 16))
    for j in tl.range(n):
        a = tl.load(x + j * BYTES, shape=(16, 16))
        b = tl.load(x + j * 4, shape=(16, 16))
        c = tl.where(a < b, a, 2.0) - tl.where(a > b, table, a)
        d = tl.softmax(tl.reshape(c[:, 2:10], (8, 16)).to("f16"), axis=1).to("f32")
        e = tl.fma(tl.broadcast_to(d[0:1, :], (16, 16)), a, 0.5)
        f = tl.sum(e, axis=0, keep_dims=False) + tl.arange(0, 16) * 0.25
        g = tl.dot(tl.permute(e, (1, 0)), b.to("bf16").to("f32"), acc=e)
        h = tl.dot(a, table) + tl.dot(table.T, a.to("f16").to("f32")) + tl.dot(a.to("f16"), b.to("f16"))
        i = (tl.rsqrt(tl.abs(h) + 1.0) + tl.sigmoid(g)) * tl.max(h.to("bf16"), axis=1).to("f32")
        k = (a * 100).to("i32") % 7 + tl.max((b * 50).to("i32"), axis=0)
        tl.store(y + j * BYTES, tl.maximum(g * 0.01, f.reshape(1, 16)) + i + k.to("f32") + f[None, :])
        tl.store(y + j * 8, a.T)
        tl.store(y + 500 * BYTES, table + 1.0)
    tl.store(y, i + k.to("f32"))
    tl.store(y + BYTES, a.T.reshape(16, 16) + b)


def test_all_kinds_of_operations(together):
    assert same(tiles, 200).ok
    assert max(together) > 32


def backwards(x, y, n, *, tl):
    """Loads of the lines before, and tiles that overlap."""
    for j in tl.range(n):
        a = tl.load(x + (n - j) * BYTES, shape=(16, 16))
        b = tl.load(x + (n - j) * 64, shape=(16, 16))
        tl.store(y + j * BYTES, tl.sum(b, axis=0) + tl.sum(b.T, axis=0) + a + tl.sum(b, axis=1))


def test_tiles_that_overlap_or_come_in_the_opposite_order(together):
    assert same(backwards, 150).ok
    assert together


def overwrites(x, y, n, *, tl):
    """Stores that reach into each other, of this iteration and of those before it."""
    for j in tl.range(n):
        a = tl.load(x + j * BYTES, shape=(16, 16))
        tl.store(y + j * 64, a)
        tl.store(y + j * 64 + 128, a * 2.0)
        tl.store(y + 64, a + 1.0)


def test_stores_are_made_in_the_order_of_the_kernel(together):
    assert same(overwrites, 100).ok
    assert together


def past_the_end(x, y, n, *, tl):
    """The second time, the last iteration does not run, either."""
    table = tl.load(x, shape=(16, 16))
    for begin in (0, 8):
        for j in tl.range(n):
            a = tl.load(x + (begin + j) * BYTES, shape=(16, 16))
            a = tl.where(a < 8.0, tl.exp(a), table)
            tl.store(y + j * BYTES, a)
        tl.store(y + begin * BYTES, a)


def before_the_start(x, y, n, *, tl):
    for begin in (90, 80):
        for j in tl.range(n):
            a = tl.exp(tl.load(x + (begin - j) * BYTES, shape=(16, 16)))
            tl.store(y + j * BYTES, a)
        tl.store(y + begin * BYTES, a)


@pytest.mark.parametrize(("kernel", "rows", "beyond"), [(past_the_end, 30, 128), (before_the_start, 50, 68)])
def test_what_lies_outside_is_found_at_its_line(kernel, rows, beyond, together):
    run = same(kernel, 120, rows=rows)
    assert together
    assert {finding.kind for finding in run.findings} == {"out-of-bounds"}
    assert sum(finding.count for finding in run.findings) == 2 * beyond


def hands_on(x, y, n, *, tl):
    """Each iteration loads what another one has stored."""
    for j in tl.range(n):
        tl.store(y + (j + 1) * BYTES, tl.load(y + j * BYTES, shape=(16, 16)) * 0.5 + 1.0)


def moves_in(x, y, n, *, tl):
    """Stores nowhere at first, and in a late iteration to what a later one loads."""
    for j in tl.range(n):
        a = tl.load(y + (n - j) * BYTES, shape=(16, 16)) * 0.5
        tl.store(y + 5 * BYTES - (n - 10) * (WINDOW >> 8) + j * (WINDOW >> 8), a)
    tl.store(y, a)


def test_a_store_that_moves_to_what_is_loaded_later_is_seen(together):
    same(moves_in, 60)
    assert not together


def adds_to_what_stays(x, y, n, *, tl):
    """A product that is the same in each iteration, and something added to it that is not."""
    b = tl.load(x, shape=(16, 16))
    for j in tl.range(n):
        tl.store(y + j * BYTES, tl.dot(b, b, acc=tl.load(x + j * BYTES, shape=(16, 16))))


def carries(x, y, n, *, tl):
    """Each iteration goes on with a value of the one before."""
    last = tl.load(x, shape=(16, 16))
    for j in tl.range(n):
        last = tl.load(x + j * BYTES, shape=(16, 16)) * 0.5 + last
        tl.store(y + j * BYTES, last)


def large(x, y, n, *, tl):
    """Values of which a few fill a cache."""
    for j in tl.range(n):
        tl.store(y + j * BYTES, tl.load(x + j * BYTES, shape=(256, 128)) * 0.5)


def all_axes(x, y, n, *, tl):
    """A sum over all axes at once, for which NumPy takes an order of its own."""
    for j in tl.range(n):
        a = tl.load(x + j * BYTES, shape=(16, 16))
        tl.store(y + j * BYTES, a + tl.sum(a))


@pytest.mark.parametrize("kernel", [hands_on, carries, large, all_axes, adds_to_what_stays])
def test_iterations_that_need_each_other_or_gain_nothing_are_computed_one_by_one(kernel, together):
    assert same(kernel, 60).ok
    assert not together


@pytest.mark.parametrize("planted", [lambda x: np.nextafter(np.exp(x), np.float32(0)), lambda x: np.exp(x, order="F")])
def test_functions_that_give_other_bits_or_lay_them_out_otherwise_are_not_used(planted, together, monkeypatch):
    known = stack.for_several

    monkeypatch.setattr(
        stack, "for_several", lambda function, ranks: planted if function is np.exp else known(function, ranks)
    )
    same(past_the_end, 120, rows=30)
    assert not together


def test_a_list_of_calls_is_looked_at_once(together, monkeypatch):
    looked = []
    learned = Stack._learned
    monkeypatch.setattr(Stack, "_learned", lambda self, slots: looked.append(self) or learned(self, slots))
    for _ in range(3):
        same(past_the_end, 100)
    assert len(looked) == 1


def _all(tl, value):
    return tl.broadcast_to(value, (16, 16))


# operations on tiles that can be broadcast to 16 by 16
STEPS = {
    "exp": lambda tl, a, b: tl.exp(a * 0.1),
    "sqrt": lambda tl, a, b: tl.sqrt(tl.abs(a)),
    "sigmoid": lambda tl, a, b: tl.sigmoid(a),
    "sin": lambda tl, a, b: tl.sin(a),
    "floor": lambda tl, a, b: tl.floor(a * 3.0),
    "add": lambda tl, a, b: a + b,
    "sub": lambda tl, a, b: a - b,
    "mul": lambda tl, a, b: a * b,
    "div": lambda tl, a, b: a / (b * b + 1.0),
    "maximum": lambda tl, a, b: tl.maximum(a, b),
    "dot": lambda tl, a, b: tl.dot(_all(tl, a), _all(tl, b)) * 0.1,
    "dot of f16": lambda tl, a, b: tl.dot(_all(tl, a).to("f16"), _all(tl, b).to("f16")) * 0.1,
    "where": lambda tl, a, b: tl.where(a < b, a, 0.5),
    "fma": lambda tl, a, b: tl.fma(a, b, 0.25),
    "max": lambda tl, a, b: tl.max(_all(tl, a), axis=0),
    "sum": lambda tl, a, b: tl.sum(_all(tl, a), axis=1),
    "sum of columns": lambda tl, a, b: tl.sum(_all(tl, a), axis=0, keep_dims=False),
    "sum of f16": lambda tl, a, b: tl.sum(_all(tl, a).to("f16"), axis=0).to("f32"),
    "softmax": lambda tl, a, b: tl.softmax(_all(tl, a), axis=1),
    "trans": lambda tl, a, b: tl.trans(_all(tl, a)),
    "row": lambda tl, a, b: _all(tl, a)[3:4, :],
    "column": lambda tl, a, b: _all(tl, a)[:, 5],
    "reshape": lambda tl, a, b: _all(tl, a).reshape(64, 4).reshape(16, 16),
    "bf16": lambda tl, a, b: a.to("bf16").to("f32"),
    "i32": lambda tl, a, b: (a * 9.0).to("i32").to("f32"),
}


CALLS = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9))


def program(x, y, steps, moves, *, tl):
    before = tl.load(x, shape=(16, 16))
    for j in tl.range(40):
        values = [before, *[tl.load(x + j * move, shape=(16, 16)) for move in moves]]
        for name, first, second in steps:
            values = [*values, STEPS[name](tl, values[first % len(values)], values[second % len(values)])]
        tl.store(y + j * 64, tl.broadcast_to(values[-1], (16, 16)))
        tl.store(y + (j + 100) * 1024, tl.broadcast_to(values[len(values) // 2], (16, 16)))


@settings(max_examples=sampled.examples(5, 60), deadline=None, derandomize=True)
@given(
    st.lists(CALLS, min_size=1, max_size=8).map(tuple),
    st.lists(st.sampled_from((4, 64, 1024, 4096)), min_size=1, max_size=3).map(tuple),
)
def test_random_programs(steps, moves):
    with mock.patch.object(stack, "_PLANS", {}) as plans:
        same(program, steps, moves)
    assert plans
    assert None not in plans.values()
