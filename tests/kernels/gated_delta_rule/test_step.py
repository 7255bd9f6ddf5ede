"""One token of the gated delta rule: as the rule says, in place, and for sequences in any slots."""

import numpy as np
import pytest
from tests.kernels.decode.problem import NUMPY

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.golden.gated_delta_rule import recurrent
from kernbench.kernels.gated_delta_rule import StepKernel, StepShape, step_arguments


class Problem:
    """Sequences whose states lie in slots of a pool; slots of nobody hold NaN."""

    def __init__(self, shape, slots, pool=5, seed=0):
        rng, kind = np.random.default_rng(seed), NUMPY[shape.dtype]
        self.shape, self.slots = shape, np.array(slots, np.int32)
        count = len(slots)
        self.q, self.k = (rng.standard_normal((count, shape.heads, shape.key_size)).astype(kind) for _ in range(2))
        if not shape.normalise:
            self.k = (self.k.astype(float) / np.linalg.norm(self.k.astype(float), axis=-1, keepdims=True)).astype(kind)
        self.v = rng.standard_normal((count, shape.v_heads, shape.value_size)).astype(kind)
        self.g = -rng.exponential(0.5, (count, shape.v_heads)).astype(np.float32)
        self.beta = rng.uniform(0, 1, (count, shape.v_heads)).astype(np.float32)
        self.states = np.full((pool, shape.v_heads, shape.value_size, shape.key_size), np.nan, np.float32)
        for slot in slots:
            if 0 <= slot < pool:
                self.states[slot] = rng.standard_normal(self.states.shape[1:])

    def golden(self):
        """Output and states after the token, in float64; a slot that is not there gives zeros."""
        out, states = np.zeros(self.v.shape), self.states.astype(np.float64)
        for i, slot in enumerate(self.slots):
            if 0 <= slot < len(states):
                q, k = (one[i : i + 1].astype(np.float64) for one in (self.q, self.k))
                if self.shape.normalise:
                    q, k = (one / np.sqrt((one**2).sum(-1, keepdims=True) + 1e-6) for one in (q, k))
                rest = (one[i : i + 1].astype(np.float64) for one in (self.v, self.g, self.beta))
                made = recurrent(q, k, *rest, initial_state=states[slot : slot + 1])
                out[i], states[slot] = made.output[0], made.final_state[0]
        return out, states

    def check(self, parts=1, **options):
        device = ptx.EmulatedDevice("sm_90a")
        out, states = device.empty(self.v.shape, self.v.dtype, name="out"), device.array(self.states, "states")
        inputs = [device.array(one) for one in (self.q, self.k, self.v, self.g, self.beta)]
        given = step_arguments(self.shape, *inputs, states, device.array(self.slots), out)
        kernel = StepKernel(self.shape, parts)
        run = device.launch(kernel.build(), kernel.grid(len(self.slots)), kernel.threads, given, **options)
        assert not run.findings, run.findings[0]
        wanted, after = self.golden()
        tolerance = {"f16": 2e-3, "bf16": 2e-2}[self.shape.dtype]
        np.testing.assert_allclose(out.numpy().astype(np.float64), wanted, atol=tolerance, rtol=tolerance)
        np.testing.assert_allclose(states.numpy(), after, atol=2e-5, rtol=2e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("keys", "values", "dtype"), [(128, 128, "bf16"), (64, 128, "f16"), (128, 64, "f16"), (256, 256, "bf16")]
)
def test_sizes(keys, values, dtype):
    Problem(StepShape(2, 4, keys, values, dtype), [3, 0]).check()


@pytest.mark.parametrize("parts", [2, 8])
def test_parts_of_a_head(parts):
    Problem(StepShape(1, 2), [1]).check(parts)


@pytest.mark.parametrize("schedule", ["reversed", 1])
def test_slots_in_any_order_and_some_that_are_not_there(schedule):
    Problem(StepShape(1, 3, 64, 64), [4, -1, 2, 5, 0]).check(schedule=schedule)


def test_normalised_queries_and_keys():
    Problem(StepShape(2, 2, 64, 64, "f16", normalise=True), [0, 2]).check()


def test_parts_that_fit():
    shape = StepShape(16, 32)
    assert [StepKernel.fitting(shape, sequences, 132).parts for sequences in (1, 2, 4, 8, 9, 100)] == [8, 8, 4, 2, 1, 1]


def test_refusals():
    with pytest.raises(MisuseError, match="v_heads = 6 must be a multiple of heads = 4"):
        StepShape(4, 6)
    with pytest.raises(MisuseError, match="key_size = 96: one of 64, 128, 256"):
        StepShape(4, 4, 96)
    with pytest.raises(MisuseError, match="dtype = 'f32': one of f16, bf16"):
        StepShape(4, 4, dtype="f32")
    with pytest.raises(MisuseError, match="parts = 16: a power of two up to 8"):
        StepKernel(StepShape(4, 4), 16)
    rows, states = np.zeros((2, 4, 128)), np.zeros((5, 4, 128, 128))
    gates = rows[:, :, 0]
    with pytest.raises(MisuseError, match=r"beta has shape \[2, 3\], and \[2, 4\] is wanted"):
        step_arguments(StepShape(4, 4), rows, rows, rows, gates, gates[:, :3], states, gates[:, 0], rows)
