"""The rule by chunks is the rule; honest kernels pass in every regime, and each planted fault is seen."""

import math
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.golden.chunk_output_kernel import ChunkOutput, make
from threadpoolctl import threadpool_limits

from kernbench.common.dtypes import DTYPES, cast
from kernbench.common.errors import MisuseError
from kernbench.golden import compare
from kernbench.golden import gated_delta_rule as rule


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Products this small are not worth the threads that wait for each other."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def close(actual, wanted):
    assert actual.shape == wanted.shape
    np.testing.assert_allclose(actual, wanted, rtol=1e-12, atol=1e-12 * np.abs(wanted).max(initial=1e-300))


def by_hand(q, k, v, g, beta, state):
    """One head of one sequence, with loops over every index."""
    outputs = []
    for t in range(len(q)):
        for row in range(len(state)):
            kept = [math.exp(g[t]) * s for s in state[row]]
            correction = beta[t] * (v[t, row] - sum(s * x for s, x in zip(kept, k[t], strict=True)))
            state[row] = [s + correction * x for s, x in zip(kept, k[t], strict=True)]
        outputs.append([sum(s * x for s, x in zip(row, q[t], strict=True)) / math.sqrt(len(q[t])) for row in state])
    return outputs, state


def test_token_by_token_agrees_with_loops():
    inputs = make(0, [5, 0, 3], H=2, group=3, K=4, V=3)
    result = rule.recurrent(**inputs)
    for n, (start, stop) in enumerate([(0, 5), (5, 5), (5, 8)]):
        for head in range(6):
            rows = {name: inputs[name][start:stop].astype(float) for name in ("q", "k", "v", "g", "beta")}
            q, k = rows["q"][:, head // 3], rows["k"][:, head // 3]
            state = inputs["initial_state"][n, head].astype(float).tolist()
            output, state = by_hand(q, k, *(rows[name][:, head] for name in ("v", "g", "beta")), state)
            close(result.output[start:stop, head], np.array(output).reshape(-1, 3))
            close(result.final_state[n, head], np.array(state))


@given(
    seed=st.integers(0, 1000),
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    H=st.integers(1, 3),
    group=st.integers(1, 3),
    K=st.integers(1, 9),
    V=st.integers(1, 9),
    chunk_size=st.integers(1, 20),
    gate=st.sampled_from([0.0, 0.01, 1.0, 30.0]),
    initial=st.sampled_from([0.0, 1.0, 1e3]),
    scale=st.none() | st.sampled_from([1.0, -0.3, 0.0]),
)
@settings(max_examples=sampled.examples(60, 150))
def test_chunks_give_what_tokens_give(seed, lengths, H, group, K, V, chunk_size, gate, initial, scale):
    inputs = make(seed, lengths, H, group, K, V, gate, initial)
    wanted = rule.recurrent(**inputs, scale=scale)
    stages = rule.chunked(**inputs, scale=scale, chunk_size=chunk_size)
    close(stages.output, wanted.output)
    close(stages.final_state, wanted.final_state)


@pytest.mark.parametrize("lengths", [[64], [63], [65], [1], [0], [], [200], [0, 130, 0, 1, 64, 0]], ids=str)
def test_chunks_of_64_rows_at_every_edge(lengths):
    inputs = make(1, lengths, K=32, V=16)
    wanted, stages = rule.recurrent(**inputs), rule.chunked(**inputs)
    close(stages.output, wanted.output)
    close(stages.final_state, wanted.final_state)
    for reference, expected in zip(rule.references(**inputs), wanted, strict=True):
        close(reference.expected, expected)


def test_one_sequence_from_nothing_is_the_default():
    inputs = make(2, [90], initial=0.0)
    short = {name: inputs[name] for name in ("q", "k", "v", "g", "beta")}
    for run in (rule.recurrent, rule.chunked):
        np.testing.assert_array_equal(run(**short).output, run(**inputs).output)


def test_sequences_do_not_touch_each_other():
    inputs = make(3, [70, 30])
    alone = {name: x[:70] for name, x in inputs.items() if name not in ("initial_state", "cu_seqlens")}
    alone["initial_state"] = inputs["initial_state"][:1]
    for name in ("q", "k", "v", "g", "beta"):
        inputs[name][70:] = np.nan
    for run in (rule.recurrent, rule.chunked):
        both, one = run(**inputs), run(**alone)
        np.testing.assert_array_equal(both.output[:70], one.output)
        np.testing.assert_array_equal(both.final_state[:1], one.final_state)


def test_an_empty_sequence_keeps_its_state():
    inputs = make(4, [0, 3, 0])
    for run in (rule.recurrent, rule.chunked):
        np.testing.assert_array_equal(run(**inputs).final_state[[0, 2]], inputs["initial_state"][[0, 2]])


def test_the_stages_are_what_they_say():
    inputs = make(5, [100], H=1, group=1, K=16, V=8)
    stages = rule.chunked(**inputs)
    k, v, g, beta, q = (inputs[name][64:, 0].astype(float) for name in ("k", "v", "g", "beta", "q"))
    G = np.cumsum(g)
    np.testing.assert_allclose(stages.gates[64:, 0], G, rtol=1e-14)
    gamma = np.exp(np.minimum(G[:, None] - G, 0))
    A = np.tril(beta[:, None] * (k @ k.T) * gamma, -1)
    inverse = np.linalg.inv(np.eye(36) + A)
    np.testing.assert_allclose(stages.inverse[1, 0, :36, :36], inverse, atol=1e-13)
    assert not stages.inverse[1, 0, 36:].any()
    assert not stages.inverse[1, 0, :, 36:].any()
    np.testing.assert_allclose(stages.u[64:, 0], inverse * beta @ v, atol=1e-12)
    np.testing.assert_allclose(stages.w[64:, 0], inverse * (beta * np.exp(G)) @ k, atol=1e-12)
    state = rule.recurrent(**{name: x[:64] for name, x in inputs.items() if name in "qkvgbeta"}, **_start(inputs))
    np.testing.assert_allclose(stages.h[1], state.final_state[0], atol=1e-12)
    v_new = stages.u[64:, 0] - stages.w[64:, 0] @ stages.h[1, 0].T
    np.testing.assert_allclose(stages.v_new[64:, 0], v_new, atol=1e-12)
    output = np.exp(G)[:, None] * (q @ stages.h[1, 0].T) + np.tril(q @ k.T * gamma) @ v_new
    np.testing.assert_allclose(stages.output[64:, 0], output / 4, atol=1e-12)


def _start(inputs):
    return {"initial_state": inputs["initial_state"]}


def test_each_stage_rounds_where_it_is_told():
    inputs = make(6, [100])
    exact = rule.chunked(**inputs)
    for stage in ("inverse", "u", "w", "h", "v_new"):
        rounded = getattr(rule.chunked(**inputs, rounding=rule.Rounding(**{stage: "bf16"})), stage)
        np.testing.assert_array_equal(rounded, cast(rounded, "bf16").astype(float))
        assert 1e-5 < np.abs(rounded - getattr(exact, stage)).max() / np.abs(rounded).max() < 0.01
    assert not np.array_equal(rule.chunked(**inputs, rounding=rule.Rounding(p="bf16")).output, exact.output)
    assert {getattr(rule.BF16, field.name) for field in fields(rule.BF16)} == {"bf16"}
    assert rule.Rounding(u="bfloat16") == rule.Rounding(u="bf16")


@given(st.lists(st.integers(0, 300), max_size=12))
def test_the_capacity_suffices_for_any_lengths(lengths):
    chunks = rule.make_chunks(np.cumsum([0, *lengths]), sum(lengths))
    assert chunks.total == sum(-(-length // 64) for length in lengths) <= chunks.capacity
    rows = [row for chunk in range(chunks.total) for row in range(sum(lengths))[chunks.rows(chunk)]]
    assert rows == list(range(sum(lengths)))


def test_whole_chunks_and_back():
    chunks = rule.make_chunks([0, 3, 3, 8], 8, size=4)
    assert chunks.indices.tolist() == [[0, 0], [2, 0], [2, 1]]
    padded = chunks.pad(np.arange(1.0, 9.0), filler=-1.0)
    assert padded.tolist() == [[1, 2, 3, -1], [4, 5, 6, 7], [8, -1, -1, -1]]
    assert chunks.unpad(padded).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_what_the_kernel_reads():
    inputs = make(7, [70, 0, 1, 64], H=2, group=2, K=16, V=8)
    told = rule.kernel_inputs(**inputs, padding=5.0)
    stages = rule.chunked(**inputs, rounding=rule.BF16)
    assert told.total_chunks.tolist() == [4]
    assert len(told.chunk_indices) == told.chunks.capacity == 6
    assert told.chunk_indices[:4].tolist() == [[0, 0], [0, 1], [2, 0], [3, 0]]
    assert (told.chunk_indices[4:] == np.iinfo(np.int32).min).all()
    assert told.cu_seqlens.tolist() == [0, 70, 70, 71, 135]
    assert told.v_new.shape == (6 * 64, 4, 8)
    assert told.h.shape == (6 * 4, 8, 16)
    assert told.output_shape == (135, 4, 8)
    np.testing.assert_array_equal(told.h[1 * 4 + 3].astype(float), stages.h[1, 3])
    np.testing.assert_array_equal(told.v_new[128:129].astype(float), stages.v_new[70:71])
    np.testing.assert_array_equal(told.g, stages.gates.astype(np.float32))
    assert (told.v_new[70:128] == 5).all()
    assert np.isnan(told.v_new[256:].astype(float)).all()
    assert np.isnan(told.h[16:].astype(float)).all()
    assert [x.dtype for x in (told.q, told.k, told.v_new, told.h)] == [DTYPES["bf16"].numpy] * 4
    assert [x.dtype for x in (told.cu_seqlens, told.chunk_indices, told.total_chunks)] == [np.int32] * 3
    # the kernel's g is rounded to f32, which may tip a rounding of P
    assert compare(stages.output.astype(np.float32), told.reference(rule.BF16), compute_dtype="bf16").max_abs < 1e-3


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]], ids=str)
def test_a_kernel_may_have_nothing_to_do(lengths):
    told = rule.kernel_inputs(**make(0, lengths))
    assert told.total_chunks.tolist() == [0]
    assert compare(ChunkOutput()(told), told.reference()).passed


def prepared(seed=0, lengths=(100, 0, 64, 200, 1), **options):
    return rule.kernel_inputs(**make(seed, list(lengths), **options))


SHAPES = [
    {"lengths": (1,), "K": 1, "V": 1},
    {"lengths": (64,), "K": 128, "V": 128},
    {"lengths": (0, 63, 65), "K": 16, "V": 8, "H": 3},
    {"lengths": (130, 7), "K": 64, "V": 32, "gate": 0.0},
    {"lengths": (130, 7), "K": 64, "V": 32, "gate": 5.0},
    {"lengths": (200,), "initial": 100.0},
    {"lengths": (200,), "initial": 0.0, "group": 4},
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("p_dtype", "output"), [("bf16", "bf16"), ("bf16", "f32"), ("f16", "f16"), ("f32", "f32")])
def test_an_honest_output_kernel_passes(shape, p_dtype, output):
    kernel = ChunkOutput(p_dtype=p_dtype, output=output)
    for seed in range(3):
        inputs = prepared(seed, **shape)
        actual = kernel(inputs)
        for rounding in (rule.EXACT, rule.Rounding(p=p_dtype)):
            verdict = compare(actual, inputs.reference(rounding), compute_dtype=p_dtype)
            assert verdict.passed, verdict.reason


def spoilt(seed, pattern):
    """Inputs whose roundings do not average out."""
    inputs = make(seed, [150, 20], K=16, V=8, gate=(0.0, 0.1)[seed % 2])
    match pattern:
        case "all values equal":
            inputs["v"][:] = cast(np.float32(0.3), "bf16")
        case "all keys equal":
            inputs["k"][:] = 0.25
        case "keys along one axis":
            inputs["k"][:] = np.eye(16)[3]
        case "one large column":
            inputs["v"][:, :, 5] *= 64
        case "beta is 1":
            inputs["beta"][:] = 1
        case "one large row":
            inputs["v"][77] *= 128
    return inputs


PATTERNS = [
    "all values equal",
    "all keys equal",
    "keys along one axis",
    "one large column",
    "beta is 1",
    "one large row",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_honest_kernels_pass_on_structured_inputs(pattern):
    for seed in range(sampled.examples(2, 4)):
        told = rule.kernel_inputs(**spoilt(seed, pattern))
        output = ChunkOutput()(told)
        for reference in (told.reference(), told.reference(rule.BF16)):
            assert compare(output, reference).passed
        honest_rule(spoilt(seed, pattern))


def honest_rule(inputs):
    """Kernels for all stages pass against the exact rule, and against the rounded one."""
    told, rounded = rule.kernel_inputs(**inputs), rule.chunked(**inputs, rounding=rule.BF16)
    for rounding in (rule.EXACT, rule.BF16):
        wanted = rule.references(**inputs, rounding=rounding)
        verdict = compare(ChunkOutput()(told), wanted.output)
        assert verdict.passed, verdict.reason
        state = rounded.final_state.astype(np.float32)
        verdict = compare(state, wanted.final_state, compute_dtype="bf16")
        assert verdict.passed, verdict.reason


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_honest_chain_of_kernels_passes(shape):
    for seed in range(sampled.examples(1, 3)):
        honest_rule(make(seed, **(shape | {"lengths": list(shape["lengths"])})))


FAULTS = {
    "no mask": {"masked": False},
    "diagonal masked away": {"diagonal": -1},
    "mask one too late": {"diagonal": 1},
    "no exp in P": {"gamma": False},
    "no exp before Q H": {"carried_decay": False},
    "no exp at all": {"gamma": False, "carried_decay": False},
    "g goes on in the next chunk": {"restart": False},
    "no scale": {"scaled": False},
    "H of the next chunk": {"state_of": 1},
    "H of the chunk before": {"state_of": -1},
    "H transposed": {"state_turned": True},
    "query of another head": {"wrong_head": True},
    "a ragged chunk stored whole": {"whole_tiles": True},
    "P in too narrow a type": {"p_dtype": "f8e4m3"},
}


@cache
def fault_inputs(gate, seed):
    inputs = prepared(seed, gate=gate)
    return inputs, [inputs.reference(rounding) for rounding in (rule.EXACT, rule.BF16)]


@pytest.mark.sampled(30)
@pytest.mark.parametrize("gate", [0.003, 0.1, 1.0])
@pytest.mark.parametrize("output", ["bf16", "f32"])
@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_only_a_planted_fault_fails(fault, output, gate):
    for seed in range(sampled.examples(1, 2)):
        inputs, references = fault_inputs(gate, seed)
        actual = ChunkOutput(output=output, **FAULTS.get(fault, {}))(inputs)
        for reference in references:
            assert compare(actual, reference, compute_dtype="bf16").passed == (fault is None)


@pytest.mark.parametrize("where", ["q", "k", "g"])
def test_nan_behind_a_ragged_end_must_not_enter(where):
    inputs = prepared(lengths=(100, 64))
    poisoned = replace(inputs, **{where: getattr(inputs, where).copy()})
    getattr(poisoned, where)[100:] = np.nan
    wanted = poisoned.reference().rows(0, 100)
    np.testing.assert_array_equal(wanted.expected, inputs.reference().expected[:100])
    assert compare(ChunkOutput()(poisoned)[:100], wanted).passed
    # a key's NaN times 0 is NaN in every row of the tile; a query's stays in rows that are not stored
    assert compare(ChunkOutput(mask_by_product=True)(poisoned)[:100], wanted).passed == (where == "q")
    with pytest.raises(MisuseError, match="not finite"):
        compare(ChunkOutput()(poisoned), poisoned.reference())


RULE_FAULTS = {
    "gates ignored": lambda x: x | {"g": 0 * x["g"]},
    "betas ignored": lambda x: x | {"beta": 0 * x["beta"] + 1},
    "initial state ignored": lambda x: x | {"initial_state": None},
    "initial state transposed": lambda x: x | {"initial_state": np.swapaxes(x["initial_state"], 2, 3)},
    "heads interleaved": lambda x: x | {name: x[name][:, ::-1] for name in "qk"},
    "sequences joined": lambda x: x | {"cu_seqlens": [0, 164, 164]},
    "gates one row late": lambda x: x | {"g": np.roll(x["g"], 1, axis=0)},
}


@pytest.mark.parametrize("fault", RULE_FAULTS)
def test_a_fault_in_the_rule_fails(fault):
    inputs = make(8, [100, 64])
    wanted, wrong = rule.references(**inputs), rule.recurrent(**RULE_FAULTS[fault](inputs))
    assert not compare(cast(wrong.output, "bf16"), wanted.output).passed
    if fault not in ("sequences joined", "initial state ignored", "initial state transposed"):
        state = wrong.final_state.astype(np.float32)
        assert not compare(state, wanted.final_state, compute_dtype="bf16").passed


def test_stages_rounded_too_coarsely_fail():
    inputs = make(9, [200])
    wanted = rule.references(**inputs)
    coarse = rule.chunked(**inputs, rounding=rule.Rounding.everywhere("f8e5m2"))
    assert not compare(cast(coarse.output, "bf16"), wanted.output).passed


GOOD = {"q": (5, 2, 4), "k": (5, 2, 4), "v": (5, 4, 3), "g": (5, 4), "beta": (5, 4)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": (5, 8)}, r"q, k and v need three axes \[row, head, head size\]; got q \(5, 8\)"),
        ({"k": (5, 2, 3)}, "q and k must have the same shape"),
        ({"v": (4, 4, 3)}, "v must have as many rows as q, g and beta rows and heads of v"),
        ({"beta": (5, 2)}, "v must have as many rows as q, g and beta rows and heads of v"),
        ({"v": (5, 3, 3), "g": (5, 3), "beta": (5, 3)}, "a multiple of the query heads, got 3 and 2"),
        ({"initial_state": (1, 4, 4, 3)}, r"here \(1, 4, 3, 4\); got \(1, 4, 4, 3\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(change, message):
    with pytest.raises(MisuseError, match=message):
        rule.chunked(**{name: -np.ones(shape) for name, shape in (GOOD | change).items()})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"g": np.full((5, 4), 0.9)}, "natural logarithms, at most 0; g holds 0.9: pass the logarithm"),
        ({"cu_seqlens": [0, 4]}, "cu_seqlens ends at 4, but there are 5 rows"),
        ({"cu_seqlens": [0, 3, 2, 5]}, r"must start with 0 and never fall; got \[0, 3, 2, 5\]"),
        ({"cu_seqlens": [0.0, 5.0]}, "must be a row of integers; got float64"),
        ({"scale": math.inf}, "scale must be a finite number, got inf"),
        ({"chunk_size": 0}, "at least 1 row, got 0"),
        ({"v": np.full((5, 4, 3), 1e6), "rounding": rule.Rounding(u="f16")}, "beyond the range of f16: widen it"),
    ],
)
def test_values_without_a_meaning_are_refused(change, message):
    with pytest.raises(MisuseError, match=message):
        rule.chunked(**({name: -np.ones(shape) for name, shape in GOOD.items()} | change))


def test_states_that_do_not_fit_are_refused():
    inputs = prepared(lengths=(70,))
    with pytest.raises(MisuseError, match=r"h must be \[chunks, Hv, V, K\], here \(2, 4, 32, 32\); got"):
        rule.chunk_output(inputs.q, inputs.k, inputs.v_new[:70], inputs.h, inputs.g)
