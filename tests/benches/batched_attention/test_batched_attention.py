"""Decode attention in PTX: right and safe in every variant, and its known faults are caught."""

import re

import numpy as np
import pytest
from tests import sampled

from kernbench import ptx
from kernbench.bench import find, run_bench
from kernbench.benches.batched_attention.decode_attention import DecodeAttention
from kernbench.benches.batched_attention.incremental_attention import BatchedIncrementalAttentionKernel
from kernbench.common.errors import BenchError, MisuseError
from kernbench.golden import attention, compare
from kernbench.ptx.builder import FULL_MASK

NAME = "batched_incremental_attention"
PARAMETERS = ("q_ptr", "k_ptrs_ptr", "v_ptrs_ptr", "out_ptr", "seq_lens_ptr")


def verdict(way, lengths, schedule="canonical"):
    """The kernel on the emulator beside the golden: the Run, and the comparison."""
    rng, m = np.random.default_rng(3), len(lengths)
    q = rng.standard_normal((m, way.num_heads, way.head_dim), np.float32)
    k, v = rng.standard_normal((2, m, way.num_kv_heads, way.max_seq_len, way.head_dim), np.float32)
    device = ptx.EmulatedDevice("sm_80")
    caches = [[device.array(part) for part in parts] for parts in (k, v)]
    pointers = [device.array(np.array([c.address for c in cache], np.uint64)) for cache in caches]
    out = device.empty(q.shape, np.float32, "o")
    args = [device.array(q), *pointers, out, device.array(np.array(lengths, np.uint32))]
    run = device.launch(way.build_ptx(), way.grid, way.block, args, schedule=schedule)
    k, v = (part.swapaxes(1, 2) for part in (k, v))
    reference = attention(q[:, None], k, v, key_lengths=np.array(lengths))
    return run, compare(out.numpy()[:, None], reference, name="o")


def test_the_kernel_as_it_is_known():
    way = BatchedIncrementalAttentionKernel(16, 64, 4, 2, 3)
    kernel = way.build_ptx()
    assert way.name == kernel.name == NAME
    assert [(p.name, p.type) for p in kernel.params] == [(name, "u64") for name in PARAMETERS]
    assert (way.grid, way.block) == ((4, 3, 1), (32, 1, 1))
    assert ptx.parse(kernel.emit()).kernels[NAME].emit() == kernel.emit()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("head_dim", [1, 40, 64, 80, 128])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (3, 1)])
def test_one_warp_a_head(head_dim, heads):
    run, found = verdict(BatchedIncrementalAttentionKernel(24, head_dim, *heads, 4), (24, 1, 0, 13))
    assert run.safe, "\n".join(map(str, run.findings))
    assert found.passed, found.reason


def test_a_sequence_without_keys_gives_zeros():
    run, _ = verdict(BatchedIncrementalAttentionKernel(8, 32, 2, 1, 2), (0, 0))
    assert run.safe
    assert (run.outputs["o"] == 0).all()


@pytest.mark.parametrize("schedule", ["reversed", 5])
def test_any_order_of_blocks_gives_the_same(schedule):
    way = BatchedIncrementalAttentionKernel(24, 64, 4, 2, 2)
    first, other = (verdict(way, (24, 9), order)[0].outputs["o"] for order in ("canonical", schedule))
    assert (first == other).all()


class OverwrittenMaximum(BatchedIncrementalAttentionKernel):
    """The old maximum is kept in the register that the in-place max overwrites: the correction is always 1."""

    def kept(self, largest):
        return largest


class LaneZeroOnly(BatchedIncrementalAttentionKernel):
    """The dot product is reduced to lane 0, and not broadcast to the others."""

    def score(self, ctx, q, k):
        partial = q[0] * k[0]
        for a, b in zip(q[1:], k[1:], strict=True):
            ctx.fma_(partial, a, b)
        for step in (16, 8, 4, 2, 1):
            partial += ctx.shfl_down(partial, step, mask=FULL_MASK)
        return partial


@pytest.mark.parametrize("fault", [OverwrittenMaximum, LaneZeroOnly])
def test_the_known_faults_are_caught(fault):
    run, found = verdict(fault(24, 64, 4, 2, 2), (24, 9))
    assert not found.passed
    assert run.outputs


def test_an_index_past_the_cache_is_found():
    # the kernel believes in room for more keys than the caches have
    way = BatchedIncrementalAttentionKernel(8, 32, 2, 2, 1)
    built = BatchedIncrementalAttentionKernel(9, 32, 2, 2, 1).build_ptx()
    way.build_ptx = lambda: built
    run, _ = verdict(way, (8,))
    found = next(f for f in run.findings if f.kind == "out-of-bounds")
    assert found.where.file.endswith("batched_attention/incremental_attention.py")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_dim": 256}, "head_dim = 256: one warp keeps heads of up to 128 in its registers"),
        ({"batch_size": 0}, "batch_size = 0: a positive whole number is wanted"),
    ],
)
def test_sizes_that_cannot_be(change, message):
    sizes = {"max_seq_len": 8, "head_dim": 64, "num_heads": 4, "num_kv_heads": 2, "batch_size": 1}
    with pytest.raises(MisuseError, match=f"^{message}$"):
        BatchedIncrementalAttentionKernel(**(sizes | change))


BENCH = find(NAME)


# panels that differ in the size of heads alone: one of them, as the next test has all sizes
@pytest.mark.parametrize("panel", sampled.some(list(BENCH.panels), 1, lambda name: re.sub("_[0-9]+$", "", name)))
def test_every_panel_is_right_and_safe(panel):
    run = run_bench(BENCH, panel)
    assert run.right, run.comparison[0].reason
    assert run.safe, "\n".join(map(str, run.findings))
    assert run.metrics["thread_instructions"] > 0


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("d_head", [64, 80, 96, 128, 256])
def test_every_type_and_head(dtype, d_head):
    settings = {"dtype": dtype, "d_head": d_head, "kernel": "split_kv", "splits": 3, "warps": 2, "context": 20}
    run = run_bench(BENCH, None, settings | {"users": 3, "lengths": (20, 2, 0), "h_q": 6, "h_kv": 2})
    assert run.right, run.comparison[0].reason
    assert run.safe, "\n".join(map(str, run.findings))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("warps", "unroll"), [(1, 1), (3, 2), (16, 4)])
@pytest.mark.parametrize("kernel", ["multi_warp", "shared_kv", "split_kv"])
def test_any_number_of_warps_and_keys(kernel, warps, unroll):
    settings = {"kernel": kernel, "warps": warps, "users": 2, "context": 30, "lengths": (30, 17), "h_kv": 8}
    settings["unroll"] = unroll
    run = run_bench(BENCH, None, settings)
    assert run.right, run.comparison[0].reason
    assert run.safe, "\n".join(map(str, run.findings))


def test_a_group_loads_its_keys_once():
    def loaded(kernel):
        metrics = run_bench(BENCH, None, {"kernel": kernel, "h_q": 8, "h_kv": 1, "users": 1, "context": 64}).metrics
        return sum(count for name, count in metrics["bytes"].items() if name.startswith("global"))

    assert loaded("shared_kv") < loaded("multi_warp") / 2


def test_a_fault_in_a_split_is_found(monkeypatch):
    monkeypatch.setattr(DecodeAttention, "partial_shape", property(lambda self: (1, 1, 1, self.head_dim)))
    run = run_bench(BENCH, "split_kv")
    assert any(f.kind == "out-of-bounds" for f in run.findings)


def test_settings_that_do_not_fit():
    with pytest.raises(BenchError, match="one_warp is for f32 and heads of up to 128; got f16, 128"):
        run_bench(BENCH, None, {"kernel": "one_warp"})
    with pytest.raises(BenchError, match="d_head = 72: shared_kv has 64, 80, 96, 128, 256"):
        run_bench(BENCH, None, {"d_head": 72})
    with pytest.raises(MisuseError, match="PTX runs on data"):
        run_bench(BENCH, "split_kv", shapes_only=True)


def test_variants_do_the_panels_job():
    from kernbench.bench import parameters_of

    assert list(BENCH.variants(parameters_of(BENCH, "one_warp"))) == ["one_warp", "multi_warp", "shared_kv", "split_kv"]
    assert list(BENCH.variants(parameters_of(BENCH, "split_kv"))) == ["multi_warp", "shared_kv", "split_kv"]


def test_a_slice_that_does_not_end_is_not_reduced():
    run = run_bench(BENCH, "split_kv", budget={"steps": 100})
    assert [f.kind for f in run.findings if f.kind == "over-budget"] == ["over-budget"]
    assert run.origin["kernel"] == "decode_attention"
    assert run.right is None


def test_a_missing_barrier_is_a_race(monkeypatch):
    monkeypatch.setattr("kernbench.ptx.builder.Context.bar_sync", lambda ctx: None)
    run = run_bench(BENCH, "shared_kv")
    races = [f for f in run.findings if f.kind == "race"]
    assert races
    assert any("batched_attention/decode_attention.py" in other.where.file for other in races[0].others)


def test_a_shuffle_that_leaves_lanes_out_is_found(monkeypatch):
    monkeypatch.setattr("kernbench.benches.batched_attention.decode_attention.FULL_MASK", 0xFFFF)
    assert not run_bench(BENCH, "shared_kv").safe
