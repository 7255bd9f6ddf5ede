"""Decode attention for sm_90a: right, safe under several schedules, and its synchronisation is needed."""

import pytest
from tests import sampled
from tests.kernels.decode.problem import Problem

from kernbench.common.errors import MisuseError
from kernbench.kernels.decode import DecodeKernel, DecodeShape, DenseCache, PagedCache
from kernbench.ptx.mutation import mutations
from kernbench.ptx.proof import prove
from kernbench.safety.budget import Budget

RAGGED = (130, 0, 1, 64, 200)


# one head; several in a tile of eight rows, which those of the next test fill; more than one tile
@pytest.mark.parametrize("group", sampled.some([1, 3, 8, 9, 16], 1, kind=lambda group: (group > 1) + (group > 8)))
def test_groups(group):
    Problem(DecodeShape(2 * group, 2, 64), (100, 70), sms=3).check()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("size", [64, 128, 256])
def test_sizes_and_types(size, dtype):
    Problem(DecodeShape(8, 1, size, dtype), (150, 65), sms=3).check()


@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager", 1, 2])
def test_ragged_lengths_under_several_schedules(schedule):
    Problem(DecodeShape(8, 2, 64), RAGGED, sms=5).check(schedule=schedule)


@pytest.mark.parametrize("sms", [1, 2, 7, 132])
def test_any_number_of_ctas(sms):
    Problem(DecodeShape(4, 1, 64), (1000, 40), sms=sms).check(stages=3)


def test_logarithms_of_the_sums():
    """Of heads that one CTA has, of shared ones, and of a sequence without keys."""
    Problem(DecodeShape(8, 2, 64, lse=True), RAGGED, sms=5).check()


def test_more_ctas_than_tiles():
    Problem(DecodeShape(4, 2, 64), (100, 0, 30), sms=20, fixed=True).check()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("page", sampled.some([16, 32, 64, 128], 2))
def test_pages(page, layout):
    Problem(DecodeShape(8, 2, 128, "f16", PagedCache(page, layout)), RAGGED, sms=5).check()


NARROW = [
    (12, 64, "f16", DenseCache()),
    (8, 128, "bf16", DenseCache()),
    (1, 256, "bf16", PagedCache(16)),
    (8, 64, "bf16", PagedCache(128)),
    (4, 128, "f16", PagedCache(32, "HND")),
]


# a dense cache, and two with pages: both types and both layouts; heads of 256 with --full, here with caches of 16 bits
@pytest.mark.parametrize(
    ("group", "size", "dtype", "cache"), [*sampled.some(NARROW[:2], 1), *(NARROW[2:] if sampled.full() else NARROW[3:])]
)
def test_caches_of_8_bits(group, size, dtype, cache):
    Problem(DecodeShape(2 * group, 2, size, dtype, cache, cache_dtype="e4m3"), RAGGED, sms=5).check()


def test_counters_are_zero_again():
    problem = Problem(DecodeShape(8, 1, 64), (500,), sms=4)
    run, _ = problem.launch()
    assert run.ok
    assert not run.outputs["counters"].any()


def test_mutants_are_found():
    """Some, or one in twelve: benchmarks run more."""
    # ten tiles of one head over two CTAs and two stages: each stage is used again twice and more
    problem = Problem(DecodeShape(8, 1, 64), (640,), sms=2)
    kernel = DecodeKernel(problem.shape, 2).build()

    def launch(mutant, **options):
        budget = Budget(steps=100_000, seconds=600)
        return problem.launch(kernel=mutant, stages=2, budget=budget, **options)[0]

    proof = prove(kernel, launch, among=sampled.some(mutations(kernel)[1::12], 2))
    assert len(proof.verdicts) >= 2
    assert proof.survivors == []


def test_refusals():
    with pytest.raises(MisuseError, match="heads = 6 must be a multiple of kv_heads = 4"):
        DecodeShape(6, 4)
    with pytest.raises(MisuseError, match="32 query heads for each KV head: at most 16"):
        DecodeShape(32, 1)
    with pytest.raises(MisuseError, match="head_size = 80: one of 64, 128, 256"):
        DecodeShape(8, 8, 80)
    with pytest.raises(MisuseError, match="dtype = 'f32': one of f16, bf16"):
        DecodeShape(8, 8, dtype="f32")
    with pytest.raises(MisuseError, match="cache_dtype = 'e5m2': bf16 as the queries are, or e4m3"):
        DecodeShape(8, 8, cache_dtype="e5m2")
    with pytest.raises(MisuseError, match="page_size = 24: one of 16, 32, 64, 128"):
        PagedCache(24)
    with pytest.raises(MisuseError, match="layout = 'DHN': one of NHD, HND"):
        PagedCache(16, "DHN")
    with pytest.raises(MisuseError, match="stages = 9: 1 to 6 fit into the shared memory of a CTA"):
        DecodeKernel(DecodeShape(8, 1), 9)
