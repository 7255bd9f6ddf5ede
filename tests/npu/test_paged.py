"""Paged attention in all forms: right, safe, the same in every order; with one thing changed never silently wrong."""

from pathlib import Path

import numpy as np
import pytest
from tests.npu.paged import FORMS, REFERENCE, SHARED, built_on, changed, expected, launch, order_lines, problem
from tests.npu.small import kinds

from kernbench.bench import find, run_bench
from kernbench.golden import compare
from kernbench.golden.paged_attention import paged_attention, paged_attention_rounded
from kernbench.npu.core.transfers import KernelCore

CASES = [
    {"lens": [100, 0, 37], "H": 32, "kv": 4, "D": 64, "page": 32},
    {"lens": [70], "H": 128, "kv": 2, "D": 128, "page": 24, "tile": 64},
    {"lens": [300], "H": 8, "kv": 8, "D": 256, "page": 128},
    {"lens": [5, 200], "H": 48, "kv": 2, "D": 32, "page": 8},
    {"lens": [0, 0], "H": 16},
    {"lens": [1500], "H": 64, "D": 64, "page": 128, "tile": 64},
    {"lens": [16, 1], "H": 3, "kv": 3, "D": 16},
    {"lens": [5], "page": 1},
    {"lens": [7, 0], "page": 3, "H": 5, "tile": 2},
    {"lens": [40], "page": 17, "D": 48},
    # as large as a tile and a step can be: every memory must still have room
    {"lens": [300], "H": 64, "D": 256, "page": 64, "tile": 64},
    {"lens": [1500], "H": 64, "page": 1024, "tile": 64},
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lens", REFERENCE, ids=str)
def test_the_cases_of_the_reference(form, lens):
    arguments = problem(lens)
    run = launch(form, arguments)
    assert run.findings == []
    agrees(run, arguments, form)
    exact = paged_attention(*arguments[:5])
    assert compare(run.outputs["out"][:, None], exact, compute_dtype="bf16").passed
    assert np.abs(run.outputs["out"][:, None] - exact.expected).max() < 1e-2


@pytest.mark.sampled(12)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_other_shapes(form, case):
    arguments = problem(**case)
    run = launch(form, arguments, chip="a5" if case["lens"] == [300] else "a2a3")
    assert run.findings == []
    agrees(run, arguments, form)


def agrees(run, arguments, form):
    """Equal but for single roundings of P to bf16 that fall the other way in f32 than in float64."""
    out, want = run.outputs["out"], expected(arguments, form)
    assert np.abs(out - want).max() < 1e-3
    assert np.linalg.norm(out - want) <= 1e-4 * np.linalg.norm(want)


def test_the_golden_rounds_p_where_it_says():
    arguments = problem([33, 64])
    exact, rounded = paged_attention(*arguments[:5]).expected[:, 0], paged_attention_rounded(*arguments[:5])
    assert 1e-5 < np.abs(exact - rounded).max() < 1e-2
    assert not paged_attention_rounded(*problem([0])[:5]).any()


@pytest.mark.parametrize("form", FORMS)
def test_repeated_pages(form):
    arguments = problem([48, 48])
    arguments[3][:] = arguments[3][0, 0]
    arguments[1][arguments[3][0, 0]] = arguments[1][0, :1].astype(np.float32).clip(-1, 1)
    run = launch(form, arguments)
    assert run.findings == []
    agrees(run, arguments, form)


@pytest.mark.parametrize("form", FORMS)
def test_every_order_gives_the_same(form):
    arguments = problem([33, 64, 0, 15], H=32, kv=2)
    first = launch(form, arguments).outputs["out"]
    for schedule in ("reversed", *range(6)):
        run = launch(form, arguments, schedule=schedule)
        assert run.findings == []
        assert np.array_equal(run.outputs["out"], first)


@pytest.mark.parametrize("form", FORMS)
def test_a_context_below_zero_is_empty(form):
    arguments = problem([20, 20])
    arguments[4][0] = -1
    run = launch(form, arguments)
    assert run.findings == []
    assert not run.outputs["out"][0].any()


@pytest.mark.parametrize("entry", [99, -1, 2**31 - 1])
@pytest.mark.parametrize("form", FORMS)
def test_a_table_that_leaves_the_cache(form, entry):
    arguments = problem([33])
    arguments[3][0, 1] = entry
    run = launch(form, arguments)
    assert "out-of-bounds" in kinds(run)
    finding = next(f for f in run.findings if f.kind == "out-of-bounds")
    assert "the index was read from block_table[0, 1]" in finding.message


LONG = {"lens": [1300], "H": 64, "D": 64, "page": 128, "tile": 64}


REACHING = (
    {"lens": [33]},
    {"lens": [7]},
    {"lens": [33], "scores": "f16"},
    {"lens": [33, 17], "H": 32, "kv": 2},
    {"lens": [0]},
    LONG,
    # one block with two items of a step each
    {"lens": [7, 9], "H": 480, "kv": 30},
)


def detected(*mutants):
    return any(launch(mutant, problem(**case)).findings for case in REACHING for mutant in mutants)


def silent_lines(module, mutants_of):
    return [
        f"{line}: {text}"
        for line, text in order_lines(module)
        if not detected(*mutants_of(changed(module, line, "pass")))
    ]


@pytest.mark.parametrize("form", FORMS)
def test_every_flag_and_barrier_is_needed(form):
    assert silent_lines(FORMS[form], lambda mutant: [mutant]) == []


@pytest.mark.parametrize("shared", SHARED)
def test_every_flag_and_barrier_that_forms_share_is_needed(shared):
    forms = [FORMS[name] for name in ("fused", "grouped")]
    assert silent_lines(SHARED[shared], lambda mutant: [built_on(f, SHARED[shared], mutant) for f in forms]) == []


@pytest.mark.parametrize("form", FORMS)
def test_scores_in_f16(form):
    for case in ({"lens": [33, 0, 64]}, {"lens": [1500], "H": 64, "D": 64, "page": 128, "tile": 64}):
        arguments = problem(**case, scores="f16")
        run = launch(form, arguments)
        assert run.findings == []
        agrees(run, arguments, form)
        exact = paged_attention(*arguments[:5])
        assert compare(run.outputs["out"][:, None], exact, compute_dtype="bf16").passed


@pytest.mark.parametrize("form", FORMS)
def test_scores_past_f16_are_wrong_and_seen(form):
    """|q k| of 2**17 is no number of f16 but one of f32: the golden tells them apart."""
    right = {}
    for scores in ("f32", "f16"):
        arguments = problem([33], scores=scores)
        arguments[0][0, 3] = arguments[1][arguments[3][0, 0], 5, 0] = 2.0**6.5
        run = launch(form, arguments)
        assert run.findings == []
        right[scores] = compare(run.outputs["out"][:, None], paged_attention(*arguments[:5]), compute_dtype="bf16")
    assert right["f32"].passed
    assert not right["f16"].passed


@pytest.mark.parametrize("form", FORMS)
def test_all_flags_and_barriers_deleted(form, monkeypatch):
    for name in ("set_flag", "wait_flag", "pipe_barrier"):
        monkeypatch.setattr(KernelCore, name, lambda core, *given: None)
    for lens in REFERENCE:
        run = launch(form, problem(lens))
        assert kinds(run) == ["missing-barrier", "race"]


@pytest.mark.parametrize("form", FORMS)
def test_tiles_past_the_end(form, monkeypatch):
    place = KernelCore.tile
    moved = lambda core, space, shape, dtype="f32", offset=0, *rest, **more: place(  # noqa: E731
        core, space, shape, dtype, offset + (191 * 1024 if space == "UB" else 0), *rest, **more
    )
    monkeypatch.setattr(KernelCore, "tile", moved)
    for lens in REFERENCE:
        assert "tile-bounds" in kinds(launch(form, problem(lens)))


def test_an_inout_declared_in_is_named():
    module = FORMS["staged"]
    lines = Path(module.__file__).read_text().splitlines()
    line = next(i for i, text in enumerate(lines, 1) if "INOUT(m_all)" in text)
    run = launch(changed(module, line, lines[line - 1].replace("INOUT(m_all)", "IN(m_all)").strip()), problem([33, 17]))
    finding = next(f for f in run.findings if f.kind == "argument-direction")
    assert "'m_all' (2x16x1 f32)) is declared IN, and the kernel writes it" in finding.message


@pytest.mark.parametrize("chip", ["a2a3", "a5"])
def test_the_bench(chip):
    bench = find("paged_attention")
    for panel in bench.panels:
        run = run_bench(bench, panel, {"form": "fused", "chip": chip}, timed=True)
        assert run.ok
        assert run.right
        assert run.metrics["time_ps"] > 0
