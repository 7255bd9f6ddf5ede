"""Our own kernels on the GPU and on the emulator, with exact sums: the same bytes."""

import numpy as np
import pytest
from tests.kernels.decode.problem import NUMPY
from tests.kernels.decode.problem import Problem as Decode
from tests.kernels.gated_delta_rule.forward_problem import Problem as Forward
from tests.kernels.gated_delta_rule.test_step import Problem as Step
from tests.kernels.prefill.problem import Problem as Prefill

from kernbench import ptx
from kernbench.bench import find, run_bench
from kernbench.kernels import append, merge
from kernbench.kernels.caches import PagedCache
from kernbench.kernels.decode import DecodeShape
from kernbench.kernels.gated_delta_rule import ForwardShape, StepKernel, StepShape, step_arguments
from kernbench.kernels.prefill import PrefillShape

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu():
    with ptx.CudaDevice(0) as device:
        yield device


def decode(shape, lengths, sms):
    return lambda device, **options: [Decode(shape, lengths, sms=sms).launch(device=device, **options)[1]]


def prefill(shape, queries, keys=None):
    return lambda device, **options: [Prefill(shape, queries, keys, sms=5).launch(device=device, **options)[1]]


def forward(shape, lengths):
    return lambda device, **options: list(Forward(shape, lengths).launch(device=device, **options)[1:])


def step(shape, slots, parts=1):
    def run(device, **options):
        problem = Step(shape, slots)
        out, states = device.empty(problem.v.shape, problem.v.dtype), device.array(problem.states)
        inputs = [device.array(one) for one in (problem.q, problem.k, problem.v, problem.g, problem.beta)]
        given = step_arguments(shape, *inputs, states, device.array(problem.slots), out)
        kernel = StepKernel(shape, parts)
        device.launch(kernel.build(), kernel.grid(len(slots)), kernel.threads, given, **options)
        return [out.numpy(), states.numpy()]

    return run


def appended(shape, slots, scales=(1.0, 1.0)):
    def run(device, **options):
        rng, page = np.random.default_rng(0), shape.cache.page_size
        inner = (page, shape.kv_heads) if shape.cache.tokens_first else (shape.kv_heads, page)
        old = rng.standard_normal((2, 5, *inner, shape.head_size)).astype(NUMPY[shape.cache_dtype or shape.dtype])
        new = rng.standard_normal((2, len(slots), shape.kv_heads, shape.head_size)).astype(NUMPY[shape.dtype])
        caches, tokens = [device.array(one) for one in old], [device.array(one) for one in new]
        kernel = append.AppendKernel(shape)
        given = append.arguments(shape, *tokens, *caches, device.array(np.array(slots, np.int64)), scales=scales)
        device.launch(kernel.build(), kernel.ctas(len(slots)), kernel.threads, given, **options)
        return [cache.numpy() for cache in caches]

    return run


def merged(shape, parts, kind):
    def run(device, **options):
        rng, tokens = np.random.default_rng(parts), 5
        lses = rng.normal(0, 20, (parts, tokens, shape.heads)).astype(np.float32)
        values = rng.standard_normal((parts, tokens, shape.heads, shape.head_size)).astype(kind)
        lses[0, 1], lses[:, 2] = -np.inf, -np.inf
        out = device.empty((tokens, shape.heads, shape.head_size), kind)
        lse = device.empty((tokens, shape.heads))
        kernel = merge.MergeKernel(shape)
        given = merge.arguments(shape, device.array(values), device.array(lses), out, lse)
        device.launch(kernel.build(), kernel.ctas(tokens), kernel.threads, given, **options)
        return [out.numpy(), lse.numpy()]

    return run


KERNELS = {
    "decode": decode(DecodeShape(8, 1, 128, "f16"), (700, 300), 6),
    "decode bf16": decode(DecodeShape(24, 2, 128, "bf16"), (200, 0, 65), 4),
    "decode, pages": decode(DecodeShape(16, 2, 64, "bf16", PagedCache(16, "HND")), (130, 77), 4),
    "prefill": prefill(PrefillShape(4, 2, 128, "f16", causal=True), (300, 1)),
    "prefill, window": prefill(PrefillShape(2, 1, 64, window=100), (200, 20), (300, 90)),
    "prefill, softcap": prefill(PrefillShape(2, 1, 64, softcap=3.0), (130,)),
    "forward": forward(ForwardShape(1, 2, 128, 128, "bf16"), (130, 64, 3)),
    "forward f16": forward(ForwardShape(1, 1, 64, 64, "f16"), (70,)),
    "step": step(StepShape(2, 4, 128, 128, "bf16"), [3, 0], 2),
    "step, normalised": step(StepShape(2, 2, 64, 64, "f16", normalise=True), [0, 2]),
    "append": appended(append.AppendShape(3, 64, "bf16", PagedCache(16, "NHD")), [3, 31, -1]),
    "append, 8 bits": appended(append.AppendShape(3, 64, "bf16", PagedCache(16, "HND"), "e4m3"), [5, 40], (0.01, 2.0)),
    "merge": merged(merge.MergeShape(3, 128, "f32", ""), 3, np.float32),
    "merge f16": merged(merge.MergeShape(3, 64, "f16", ""), 9, np.float16),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(gpu, name):
    ours = KERNELS[name](ptx.EmulatedDevice("sm_90a"), checks=False, exact=True)
    theirs = KERNELS[name](gpu)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.view(f"u{one.itemsize}"), other.view(f"u{other.itemsize}"))


BENCHES = [
    (bench, panel)
    for bench in ("batched_incremental_attention", "gated_delta_rule_chunk_output")
    for panel in find(bench).panels
    if not panel.startswith("sm_100")
]


@pytest.mark.parametrize(("bench", "panel"), BENCHES)
def test_benches(bench, panel):
    ours = run_bench(find(bench), panel, {"device": "emulator"}, exact=True).outputs
    theirs = run_bench(find(bench), panel, {"device": "cuda"}).outputs
    for name, one in ours.items():
        np.testing.assert_array_equal(one.view(f"u{one.itemsize}"), theirs[name].view(f"u{one.itemsize}"))
