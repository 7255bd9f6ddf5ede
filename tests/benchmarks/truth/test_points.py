"""The truth set: enough points, split before anything is fitted, and kernels that are right and safe when emulated."""

import inspect
from collections import Counter

import pytest
from benchmarks.truth.eighth_problems import EIGHTH
from benchmarks.truth.emulated import problem
from benchmarks.truth.fifth_problems import FIFTH
from benchmarks.truth.frozen import FROZEN, launch
from benchmarks.truth.more_problems import MORE
from benchmarks.truth.newer_problems import NEWER
from benchmarks.truth.points import BOUNDS, SETS, SPLITS, points
from benchmarks.truth.problems import (
    FOLDER,
    flash,
    gather,
    gemm,
    histogram,
    layer_norm,
    matmul,
    reduction,
    saxpy,
    softmax,
    split_k,
    stencil,
    strided_copy,
    transpose,
)
from benchmarks.truth.registry import PROBLEMS
from benchmarks.truth.seventh_problems import SEVENTH
from benchmarks.truth.sixth_problems import SIXTH
from tests import sampled

from kernbench import ptx

POINTS = points()
# points whose kernel is a file of `ptx/` with a problem of `registry`
COMPILED = [point for point in POINTS if point.set not in ("ours", "kernels")]
SMALL = [
    saxpy(4096),
    strided_copy(4095, 17),
    *(reduction(8192, form) for form in ("tree", "shuffle")),
    *(transpose(64, form) for form in ("naive", "conflicts", "padded")),
    stencil(64, 2),
    stencil(24, 3),
    *(histogram(2048, form, content) for form in ("global", "shared") for content in ("bytes", "one")),
    *(gemm(64, form) for form in ("tile", "registers")),
    matmul(128, 128, 128, "128x128"),
    matmul(64, 128, 64, "64x64"),
    matmul(128, 256, 128, "128x256"),
    matmul(16, 64, 256, "16x64"),
    *(split_k(16, 64, 512, splits) for splits in (1, 4, 8)),
    *(softmax(2, columns) for columns in (1024, 2048, 8192)),
    layer_norm(2, 2048),
    flash(1, 256, 64),
    flash(1, 128, 128),
    gather(8, 32, 128),
    gather(4, 16, 1024),
    matmul(128, 64, 128, "128x64"),
    matmul(64, 128, 64, "64x128"),
    *(
        MORE[name](**given)
        for name, given in (
            ("triad", {"n": 1000}),
            ("copy_pairs", {"n": 4096, "blocks": 2}),
            ("dot", {"n": 8192}),
            ("scan", {"n": 2048}),
            ("words", {"n": 1000, "table": 5000, "form": "gather"}),
            ("words", {"n": 1000, "table": 1000, "form": "scatter"}),
            ("logistic", {"n": 512}),
            ("polynomial", {"n": 256}),
            ("row_max", {"rows": 3, "columns": 700}),
            ("column_sum", {"rows": 64, "columns": 256, "shares": 4}),
            ("matvec", {"rows": 16, "columns": 512}),
            ("halves", {"n": 128}),
            ("gemm_128", {"n": 128}),
            ("convolve", {"n": 1024}),
            ("bodies", {"n": 256}),
            ("sort_pieces", {"n": 2048}),
            ("count_positive", {"n": 4096}),
            ("histogram_warps", {"n": 4096}),
            ("rms_norm", {"rows": 2, "columns": 2048}),
            ("rms_norm", {"rows": 2, "columns": 4096}),
            ("bias_gelu", {"rows": 2, "columns": 1024}),
            ("log_sum_exp", {"rows": 2, "columns": 4096}),
            ("attention", {"heads": 1, "keys": 128}),
            ("bags", {"count": 4, "table": 64}),
        )
    ),
    *(
        NEWER[name](**given)
        for name, given in (
            ("rotary", {"tokens": 2, "heads": 8}),
            ("gated", {"n": 2048}),
            ("cross_entropy", {"rows": 1, "columns": 4096}),
            ("narrow_matvec", {"rows": 4, "columns": 2048}),
            ("causal_taps", {"tokens": 64, "channels": 512}),
            ("many_products", {"count": 2}),
            ("row_argmax", {"rows": 2, "columns": 4096}),
            ("row_sums", {"rows": 2, "columns": 2048}),
            ("linear", {"m": 32, "n": 64, "k": 128, "tile": "32x64"}),
            ("linear", {"m": 128, "n": 256, "k": 64, "tile": "128x256"}),
            ("merge", {"parts": 3, "tokens": 1}),
        )
    ),
    *(
        FIFTH[name](**given)
        for name, given in (
            ("moments", {"n": 1000}),
            ("sparse_rows", {"rows": 16, "each": 64, "columns": 5000}),
            ("narrowed", {"rows": 4, "columns": 1024}),
            ("escapes", {"side": 64, "most": 50}),
            ("apart", {"n": 700}),
            ("fours", {"rows": 16, "columns": 1024}),
            ("looked_up", {"n": 8192}),
            ("angles", {"n": 512, "steps": 5}),
            ("tiles_64", {"n": 128}),
            ("added_norm", {"rows": 2}),
            ("gated_back", {"n": 2048}),
            ("turned", {"n": 128}),
            ("two_products", {"m": 128, "n": 128, "k": 256}),
            ("wide_weights", {"m": 64, "n": 128, "k": 128}),
            ("one_query", {"heads": 2, "keys": 128}),
        )
    ),
    *(
        SIXTH[name](**given)
        for name, given in (
            ("ragged_rows", {"rows": 20, "each": 40, "columns": 5000}),
            ("nibbles", {"rows": 16, "columns": 2048}),
            ("add_rows", {"rows": 20, "table": 30}),
            ("halvings", {"n": 600}),
            ("nearest_bits", {"n": 512}),
            ("filter_3x3", {"channels": 2, "side": 64}),
            ("eight_bits", {"n": 128, "k": 256}),
            ("piped_means", {"rows": 3, "pieces": 5, "blocks": 2}),
            ("top_four", {"rows": 8, "columns": 1000}),
            ("causal", {"heads": 1, "keys": 256}),
            ("shared_keys", {"heads": 1, "keys": 1024}),
            ("norm_back", {"rows": 2}),
            ("narrow_products", {"m": 128, "n": 128, "k": 256}),
            ("running_sums", {"rows": 2}),
            ("left_out", {"n": 2048}),
            ("ragged_means", {"sequences": 6, "each": 20}),
            ("tiles_in_turn", {"m": 256, "n": 256, "k": 128}),
            ("chosen_rows", {"rows": 128, "n": 128, "k": 128}),
        )
    ),
    *(
        SEVENTH[name](**parameters)
        for name, parameters in (
            ("key_stream", {"threads": 512}),
            ("options", {"n": 1000}),
            ("searched", {"count": 1000, "n": 512}),
            ("transformed", {"rows": 3}),
            ("changes", {"pairs": 5}),
            ("resized", {"side": 32}),
            ("channels", {"n": 600}),
            ("half_steps", {"n": 600}),
            ("double_rows", {"rows": 16, "columns": 256}),
            ("in_eight_bits", {"rows": 3}),
            ("turned_bits", {"n": 512}),
            ("in_circle", {"threads": 512}),
            ("largest_near", {"n": 1024}),
        )
    ),
    *(
        EIGHTH[name](**parameters)
        for name, parameters in (
            ("group_norm", {"groups": 3, "points": 1024}),
            ("adam_step", {"n": 2048}),
            ("whole_products", {"m": 128, "n": 256, "k": 256}),
            ("paged_query", {"sequences": 2, "heads": 2, "pages": 4}),
            ("sorted_rows", {"rows": 2}),
            ("gated_scan", {"batch": 2, "columns": 32}),
            ("in_nineteen_bits", {"m": 128, "n": 256, "k": 128}),
            ("two_of_many", {"rows": 64}),
            ("embedded", {"tokens": 16, "table": 100}),
            ("pooled", {"channels": 2, "side": 64}),
            ("centres", {"n": 600}),
            ("diagonals", {"n": 300, "rows": 20}),
            ("mish", {"rows": 5, "columns": 256}),
        )
    ),
]


def test_there_are_enough_points_and_few_to_tune_with():
    splits, bounds = Counter(point.split for point in POINTS), Counter(point.bound for point in POINTS)
    assert splits["held-out"] >= 30
    assert splits["tuning"] <= 6
    assert bounds["memory"] >= len(POINTS) / 2
    held_out = [point.bound for point in POINTS if point.split == "held-out"]
    assert held_out.count("memory") >= len(held_out) / 2
    assert len({point.id for point in POINTS}) == len(POINTS)
    assert {point.set for point in POINTS} == set(SETS)
    assert set(splits) == set(SPLITS)
    assert set(bounds) == set(BOUNDS)


@sampled.each(COMPILED)
def test_a_point_can_be_launched(point):
    work = PROBLEMS[point.problem](**point.parameters)
    assert work.entry in ptx.parse(work.text).kernels
    assert work.moved > 0
    assert all(extent >= 1 for extent in work.grid)


def test_points_of_our_own_are_parameters_of_their_benches():
    from kernbench.benches import batched_incremental_attention, gated_delta_rule_chunk_output

    benches = {"decode": batched_incremental_attention, "chunk_output": gated_delta_rule_chunk_output}
    for point in POINTS:
        if point.set == "ours":
            given = {key: tuple(v) if isinstance(v, list) else v for key, v in point.parameters.items()}
            benches[point.problem].Parameters(**given)


# of every fifth kernel one; --full gives each of them every content
ONE_OF_EACH = sampled.some(SMALL, 1, lambda work: (work.file, work.entry))


@pytest.mark.parametrize(
    "work", sampled.some(ONE_OF_EACH, len(ONE_OF_EACH) // 5), ids=lambda work: f"{work.file}-{work.entry}"
)
def test_a_kernel_is_right_and_safe(work):
    assert problem(work) == ""


def test_every_kernel_is_checked():
    used = {PROBLEMS[point.problem](**point.parameters).file for point in COMPILED}
    assert used == {work.file for work in SMALL} == {file.stem for file in FOLDER.glob("*.ptx")}
    entries = {(work.file, work.entry) for work in SMALL}
    for point in COMPILED:
        work = PROBLEMS[point.problem](**point.parameters)
        assert (work.file, work.entry) in entries


def test_a_wrong_result_is_seen():
    from dataclasses import replace

    assert "from what is expected" in problem(replace(saxpy(4096), expected=lambda x: 3.0 * x))
    assert "are expected as findings" in problem(replace(saxpy(4096), findings=("race",)))


def test_problems_take_what_points_give():
    for point in COMPILED:
        assert set(point.parameters) == set(inspect.signature(PROBLEMS[point.problem]).parameters)


def test_kernels_that_are_kept_have_all_that_their_launch_needs():
    named = {point.id for point in POINTS if point.set == "kernels"}
    assert named == {file.stem for file in FROZEN.glob("*.json")}
    assert {launch(name).file for name in named} == {file.stem for file in FROZEN.glob("*.ptx")}
    for name in named:
        work = launch(name)
        kernel = ptx.parse(work.text).kernels[work.entry]
        assert len(kernel.params) == len(work.arguments)
        given = {one.get("map", one.get("pointer")) for one in work.arguments} - {None}
        assert given <= set(work.arrays)
        assert work.out in work.arrays
        # an array in place is read and written
        assert work.moved <= 2 * work.nbytes


def test_a_kernel_that_is_kept_is_right():
    device, work = ptx.EmulatedDevice("sm_90a"), launch("append-512")
    given, out = work.made(device)
    run = device.launch(ptx.parse(work.text).kernels[work.entry], work.grid, work.block, given, work.shared)
    assert run.safe, run.findings
    slots = work.arrays["slots"]["values"]
    (first, _, second, *_), found = given, out.numpy().reshape(-1, 8, 128)
    assert second is out
    assert (found[slots] == first.numpy()).all()
