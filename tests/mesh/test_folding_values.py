"""Loops of `tl.range` in launches with data give the values, findings and rows that running every iteration gives."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.mesh import both_ways
from tests.mesh import test_folding as kernels

from kernbench import mesh
from kernbench.machine import load
from kernbench.safety.budget import Budget
from kernbench.safety.memory import WINDOW
from kernbench.triton_emu.repeating.folding import Fold
from kernbench.triton_emu.stacking.transfers import Load

BYTES = kernels.BYTES
pytestmark = pytest.mark.usefixtures("small_heap", "short_loops_inside")


def launched(kernel, *args, folds=True, scratch="4 MiB", rows=512, filled=True, **options):
    """The run, and what the second tensor holds after it on both ranks."""
    machine = load("reference").override({"pe.scratch": scratch})
    host = mesh.Host(machine, ranks=2, **options)
    host.folds = folds
    values = np.random.default_rng(0).standard_normal((2, rows, 768)).astype(np.float32)
    x = host.replicate(values[0])
    y = host.replicate(values[1]) if filled else host.empty((rows, 768), "f32")
    run = host.launch(kernel, x, y, *args)
    return run, [y.part(rank, rank).tobytes() for rank in range(2)]


def same(kernel, *args, **options):
    """Both ways give the same values, too; the folded run."""
    (folded, left), (full, right) = (launched(kernel, *args, folds=folds, **options) for folds in (True, False))
    assert left == right
    both_ways.alike(folded, full)
    return folded


@pytest.mark.parametrize("filled", [True, False])
def test_the_loop_of_an_attention_kernel(folds, filled):
    run = same(kernels.softmax, 100, filled=filled)
    assert min(folds) > 90
    # what nobody wrote is found in the repeated iterations, too
    assert filled or sum(finding.count for finding in run.findings) >= 200


def many(x, y, n, *, tl):
    """Each operation of the language that is computed again."""
    total, count = tl.zeros((16, 16)), tl.full((16, 16), 1, "i32")
    for j in tl.range(n):
        a = tl.load(x + j * BYTES, shape=(16, 16))
        b = tl.load(x + j * 4, shape=(16, 16), strides=(17, 1))
        c = tl.where(a < b, a, 2.0) - tl.where(a > b, b, a)
        d = tl.softmax(tl.reshape(c[:, 2:10], (8, 16)).to("f16"), axis=1).to("f32")
        e = tl.fma(tl.broadcast_to(d[0:1, :], (16, 16)), a, 0.5)
        f = tl.sum(e, axis=0, keep_dims=False) + tl.arange(0, 16) * 0.25
        g = tl.dot(tl.permute(e, (1, 0)), b.to("bf16").to("f32"), acc=total)
        total = tl.maximum(g * 0.01, f.reshape(1, 16)) + d.sum()
        count = count + tl.max(count, axis=1) % 7
        tl.store(y + j * BYTES, total)
        tl.store(y + j * 8, a.T, strides=(40, 2))
    tl.store(y, total + count.to("f32"))


def test_all_kinds_of_operations(folds):
    same(many, 60)
    assert min(folds) > 50


@pytest.mark.parametrize("kernel", [kernels.pipelined, kernels.rotates, kernels.exchanging])
def test_values_that_are_carried_over(kernel, folds):
    assert same(kernel, 60).ok
    assert max(folds) > 40


def running(x, y, n, *, tl):
    """Each iteration reads what the one before has stored."""
    for j in tl.range(n):
        tl.store(y + (j + 1) * BYTES, tl.load(y + j * BYTES, shape=(16, 16)) * 0.5 + tl.load(x, shape=(16, 16)))


@pytest.mark.parametrize("kernel", [running, kernels.nested])
def test_stores_are_seen_by_later_loads(kernel, folds):
    assert same(kernel, *(30, 40)[: 1 + (kernel is kernels.nested)]).ok
    assert folds


def staying(x, y, n, *, tl):
    """Loads and views that are the same in every iteration, of a tile from before it, too, and one that is carried."""
    before = tl.load(x + 40 * BYTES, shape=(16, 16))
    last = tl.zeros((16, 16))
    for j in tl.range(n):
        a = tl.load(x, shape=(16, 16))
        b = tl.load(x + j * BYTES, shape=(16, 16))
        total = tl.dot(a.T, tl.trans(before)) + tl.dot(b, a.T.reshape(16, 16)) * 0.1 + last + tl.full((16, 16), 0.25)
        last = a.T[2:3, :]
        tl.store(y + j * BYTES, total)


def moving_in(x, y, n, *, tl):
    """Stores nowhere at first, and in the third iteration from the end to what each of them loads."""
    total = tl.zeros((16, 16))
    for j in tl.range(n):
        total = total + tl.load(y, shape=(16, 16)).T
        tl.store(y - (n - 3) * (WINDOW >> 8) + j * (WINDOW >> 8), total)
    tl.store(y + BYTES, total)


def test_what_stays_the_same_is_looked_at_once(folds, monkeypatch):
    calls = []
    load = Load.__call__
    monkeypatch.setattr(Load, "__call__", lambda self: calls.append(self) or load(self))
    assert same(staying, 60).ok
    # the one that moves, in each repeated iteration of both ranks, and the other once
    assert len(calls) == sum(folds) + len(folds)


def test_a_store_that_moves_to_what_was_the_same_so_far_is_seen(folds):
    run = same(moving_in, 60)
    assert max(folds) > 50
    assert {finding.kind for finding in run.findings} == {"out-of-bounds"}


def test_an_outer_loop_computes_what_inner_ones_have_folded(folds):
    same(kernels.nested, 30, 50)
    assert 26 in folds
    assert len(folds) < 12


def test_iterations_of_more_commands_than_are_noted_run(folds, monkeypatch):
    for limit in ("values.MOST_TRACED", "folding.MOST_TRACED"):
        monkeypatch.setattr(f"kernbench.triton_emu.repeating.{limit}", 20)
    monkeypatch.setattr("kernbench.triton_emu.engine.core.MOST_TRACED", 20)
    same(kernels.nested, 30, 50)
    assert 26 not in folds


def test_the_hundredth_iteration_is_found_out_of_bounds_at_its_line(folds):
    run = same(kernels.past_the_end, 101, rows=100)
    assert max(folds) > 90
    assert [finding.kind for finding in run.findings] == ["out-of-bounds"]


def test_what_does_not_fit_is_found():
    same(kernels.softmax, 40, scratch="4 KiB")


def test_an_endless_loop_is_stopped_at_its_budget(folds):
    run = same(kernels.goes_on, 10**12, budget=Budget(steps=3000))
    assert folds
    assert [finding.kind for finding in run.findings] == ["over-budget"]


def asks(x, y, n, *, tl):
    for j in tl.range(n):
        a = tl.load(x + j * BYTES, shape=(16, 16))
        if tl.max(a).item() > 3.3:
            tl.store(y + j * BYTES, a)


def looks_at_arrays(x, y, n, *, tl):
    for j in tl.range(n):
        a = tl.load(x + j * BYTES, shape=(16, 16))
        tl.store(y + j * BYTES, a + 1.0 if a.data[0, 0] > 0 else a)


def says(x, y, n, *, tl):
    for j in tl.range(n):
        tl.device_print("a", tl.load(x + j * BYTES, shape=(2, 1)))


def prints(x, y, n, *, tl):
    for j in tl.range(n):
        tl.store(y + j * BYTES, tl.load(x + j * BYTES, shape=(2, 1)))
        print("one more")


def demands(x, y, n, *, tl):
    for j in tl.range(n):
        tl.device_assert(tl.load(x + j * BYTES, shape=(16, 16)) < 3.3)


def places(x, y, n, *, tl):
    for j in tl.range(n):
        tl.store(y, tl.arange(j, j + 16))


UNLIKE = [kernels.looks, kernels.counts, kernels.lists, kernels.enumerates, kernels.counts_in_a_class, kernels.talks]


@pytest.mark.parametrize("kernel", [*UNLIKE, asks, looks_at_arrays, says, prints, demands, places])
def test_iterations_that_are_not_alike_or_look_at_values_all_run(kernel, folds, capsys):
    same(kernel, 40)
    assert not folds
    assert kernel is not prints or capsys.readouterr().out == "one more\n" * 40 * 2 * 2


def test_a_launch_that_is_run_again_finds_its_tensors_as_they_were(folds, monkeypatch):
    monkeypatch.setattr(Fold, "predicts_last", lambda self: False)
    same(running, 40)
    assert folds


@settings(max_examples=sampled.examples(7, 40), deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.lists(kernels.OPERATIONS, min_size=1, max_size=4).map(tuple),
            st.integers(1, 16),
            st.sampled_from(["plain", "plain", "plain", "index", "differs", "break", "raise"]),
            st.integers(1, 20),
        ),
        min_size=1,
        max_size=6,
    ).map(tuple),
    st.sampled_from([kernels.several_entries, kernels.in_a_routine]),
    st.sampled_from(["4 MiB", "40 KiB", "24 KiB"]),
)
def test_random_entries_of_one_loop_compute_alike_both_ways(entries, kernel, scratch):
    same(kernel, entries, scratch=scratch)


def test_random_draws_are_made_in_every_iteration(folds):
    random.seed(1)
    assert same(kernels.draws, 40).ok
    assert not folds
