"""Prefill attention for sm_90a: right, safe under several schedules, and its synchronisation is needed."""

import numpy as np
import pytest
from tests import sampled
from tests.kernels.built import built
from tests.kernels.prefill.problem import Problem

from kernbench.common.errors import MisuseError
from kernbench.kernels.caches import PagedCache
from kernbench.kernels.prefill import PrefillKernel, PrefillPlan, PrefillShape, arguments
from kernbench.ptx.mutation import mutations
from kernbench.ptx.proof import prove
from kernbench.safety.budget import Budget


# other tests have heads of 64
@pytest.mark.sampled(2)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("size", sampled.some([256, 64, 128], 2))
def test_sizes(size, causal):
    Problem(PrefillShape(2, 1, size, causal=causal), (200,)).check()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager", 1])
@pytest.mark.parametrize("turns", [True, False])
def test_sequences_of_many_lengths_under_several_schedules(turns, schedule):
    Problem(PrefillShape(2, 2, 64, "f16"), (130, 64, 1), (200, 64, 300)).check(turns=turns, schedule=schedule)


@pytest.mark.parametrize("query_stages", [1, 2])
def test_tiles_of_queries_that_share_a_slot(query_stages):
    """Five tiles on one CTA, one of them with fewer rows than a group has."""
    Problem(PrefillShape(1, 1, 64), (384, 150), sms=1).check(query_stages=query_stages, schedule="eager")


def test_more_queries_than_keys_where_all_are_seen():
    Problem(PrefillShape(2, 1, 64, causal=False), (140, 30), (40, 200)).check()


def test_a_sequence_without_keys_gives_zeros():
    Problem(PrefillShape(2, 1, 64, causal=False), (20, 10), (0, 30)).check()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize(("page", "size"), sampled.some([(16, 128), (32, 64), (16, 256), (64, 256), (128, 64)], 2))
def test_pages(page, size, layout):
    shape = PrefillShape(2, 1, size, "f16", cache=PagedCache(page, layout))
    Problem(shape, (70, 1, 130), (150, 40, 130)).check()


@pytest.mark.parametrize("schedule", sampled.some(["reversed", "eager", 1], 1))
def test_pages_under_several_schedules(schedule):
    Problem(PrefillShape(2, 2, 64, cache=PagedCache(16)), (130, 64, 1), (200, 64, 300)).check(schedule=schedule)


# the sums of capped scores; with --full each alone
@pytest.mark.parametrize("softcap", sampled.some([2.0, 0.0], 1))
def test_logarithms_of_the_sums(softcap):
    shape = PrefillShape(2, 1, 64, "f16", causal=False, softcap=softcap, lse=True)
    Problem(shape, (140, 30, 10), (90, 200, 0)).check()


# with --full within a tile, a whole one and beyond all keys, too
@pytest.mark.parametrize("window", sampled.some([1, 50, 500, 128], 1))
def test_windows(window):
    Problem(PrefillShape(1, 1, 64, window=window), (300,), (330,)).check()


@pytest.mark.named
def test_softcap():
    Problem(PrefillShape(1, 1, 64, "f16", softcap=2.0), (140,), (260,)).check()


def test_mutants_are_found():
    """Some of them."""
    # three tiles of queries on one CTA, so that every stage is used again
    problem = Problem(PrefillShape(1, 1, 64), (384,), sms=1)
    kernel = built(PrefillKernel(problem.shape))

    def launch(mutant, **options):
        return problem.launch(kernel=mutant, budget=Budget(steps=100_000, seconds=600), **options)[0]

    proof = prove(kernel, launch, among=sampled.some(mutations(kernel)[3::17], 2))
    assert len(proof.verdicts) >= 2
    assert proof.survivors == []


def test_plans():
    plan = PrefillPlan.of(PrefillShape(4, 2, 128), [300, 100], [300, 500], sms=8)
    # longest first, all heads of a tile beside each other
    assert plan.records[:, 7].tolist() == [4] * 4 + [3] * 4 + [2] * 4 + [1] * 4
    assert plan.records[:4, 2].tolist() == [0, 1, 2, 3]
    pairs = sum(range(1, 301)) + sum(range(401, 501))
    assert plan.flops == 4 * pairs * 4 * 128
    assert "400 queries of 2 sequences, 4 heads: 16 tiles of 128 rows over 8 CTAs" in plan.explain()
    windowed = PrefillPlan.of(PrefillShape(1, 1, 128, window=128), [512], sms=8)
    assert sorted(windowed.records[:, 7].tolist()) == [1, 2, 2, 2]


def test_refusals():
    with pytest.raises(MisuseError, match="heads = 6 must be a multiple of kv_heads = 4"):
        PrefillShape(6, 4)
    with pytest.raises(MisuseError, match="head_size = 96: one of 64, 128, 256"):
        PrefillShape(4, 4, 96)
    with pytest.raises(MisuseError, match="window = 3: a positive number of keys, with causal=True"):
        PrefillShape(4, 4, causal=False, window=3)
    with pytest.raises(MisuseError, match="softcap = -1"):
        PrefillShape(4, 4, softcap=-1)
    with pytest.raises(MisuseError, match="dtype = 'f32': one of f16, bf16"):
        PrefillShape(4, 4, dtype="f32")
    shape = PrefillShape(4, 4, 64)
    with pytest.raises(MisuseError, match="5 queries and 3 keys: causal queries need a key each"):
        PrefillPlan.of(shape, [5], [3])
    with pytest.raises(MisuseError, match="1 numbers of keys for 2 sequences"):
        PrefillPlan.of(shape, [5, 5], [5])
    with pytest.raises(MisuseError, match="there are no queries"):
        PrefillPlan.of(shape, [0])
    with pytest.raises(MisuseError, match=r"stages = 4: .* bytes of shared memory are too many"):
        PrefillKernel(PrefillShape(4, 4), stages=4)
    with pytest.raises(MisuseError, match="stages = 3: a power of two is wanted"):
        PrefillKernel(shape, stages=3)
    with pytest.raises(MisuseError, match="query_stages = 3: 1 or 2"):
        PrefillKernel(shape, query_stages=3)
    assert [PrefillKernel(PrefillShape(4, 4, size)).query_stages for size in (64, 128, 256)] == [2, 2, 1]
    paged = PrefillPlan.of(PrefillShape(4, 4, 64, cache=PagedCache(16)), [5], [70], 2)
    pages, few = np.zeros((9, 16, 4, 64)), np.zeros((5, 4, 64))
    with pytest.raises(MisuseError, match=r"a paged cache needs a table \[1, pages\]"):
        arguments(None, paged, few, pages, pages, few)
    with pytest.raises(MisuseError, match="a sequence of 70 keys, and the table has 4 pages of 16 for each"):
        arguments(None, paged, few, pages, pages, few, table=np.zeros((1, 4)))
    with pytest.raises(MisuseError, match="a shape with lse=True, and no other, is given an array lse"):
        arguments(None, paged, few, pages, pages, few, lse=few[..., 0])
    rows = np.zeros((5, 4, 64))
    with pytest.raises(MisuseError, match=r"k has shape \[5, 4, 64\], and \[7, 4, 64\] is wanted"):
        arguments(None, PrefillPlan.of(shape, [5], [7]), rows, rows, rows, rows)
