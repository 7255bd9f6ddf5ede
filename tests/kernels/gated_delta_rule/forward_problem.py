"""A forward pass of the gated delta rule with its golden, and its two launches on a device."""

from dataclasses import dataclass

import numpy as np
from tests.kernels.built import built
from tests.kernels.decode.problem import NUMPY

from kernbench import ptx
from kernbench.golden.gated_delta_rule import recurrent
from kernbench.kernels.gated_delta_rule import ForwardPass, ForwardPlan, ForwardShape


@dataclass
class Problem:
    """Sequences one after the other; `decay` is the mean of -g."""

    shape: ForwardShape
    lengths: tuple[int, ...]
    states: bool = True
    decay: float = 0.05
    seed: int = 0
    sms: int = 0

    def __post_init__(self):
        shape, rng = self.shape, np.random.default_rng(self.seed)
        self.plan = ForwardPlan.of(shape, self.lengths, self.sms)
        kind, tokens = NUMPY[shape.dtype], self.plan.tokens
        q, k = (rng.standard_normal((tokens, shape.heads, shape.key_size)) for _ in range(2))
        self.q, self.k = ((one / np.linalg.norm(one, axis=-1, keepdims=True)).astype(kind) for one in (q, k))
        self.v = rng.standard_normal((tokens, shape.v_heads, shape.value_size)).astype(kind)
        self.g = -rng.exponential(self.decay, self.v.shape[:2]).astype(np.float32)
        self.beta = rng.uniform(0, 1, self.v.shape[:2]).astype(np.float32)
        size = (len(self.lengths), shape.v_heads, shape.value_size, shape.key_size)
        self.initial = rng.standard_normal(size).astype(np.float32) if self.states else None

    def poison(self, rows):
        """Rows of all inputs become NaN."""
        for array in (self.q, self.k, self.v, self.g, self.beta):
            array[rows] = np.nan

    def golden(self):
        """Output and final states in float64, token by token."""
        inputs = [one.astype(np.float64) for one in (self.q, self.k, self.v, self.g, self.beta)]
        starts = np.concatenate([[0], np.cumsum(self.lengths)])
        return recurrent(*inputs, initial_state=self.initial, cu_seqlens=starts)

    def launch(self, mutants=None, device=None, last=None, **options):
        """All runs, or those up to the kernel `last`, by the names of their kernels; output, and final states.

        With `last` the kernels before it only compute what it is given: the options are for it alone.
        """
        device = device or ptx.EmulatedDevice("sm_90a")
        arrays = {name: device.array(getattr(self, name), name) for name in ("q", "k", "v", "g", "beta")}
        arrays["out"] = device.empty(self.v.shape, self.v.dtype, name="out")
        if self.states:
            arrays["initial"] = device.array(self.initial, "initial")
            arrays["final"] = device.empty(self.initial.shape, name="final")
        runs = {}
        for launch, given in ForwardPass(device, self.plan, {**NUMPY, "f32": np.float32}).arguments(arrays):
            kernel = launch.kernel
            text = (mutants or {}).get(kernel.name) or built(kernel)
            chosen = options if last in (None, kernel.name) else {"checks": False}
            run = device.launch(text, launch.grid, kernel.threads, given, kernel.shared_bytes, **chosen)
            runs[kernel.name] = run
            if run.findings or kernel.name == last:
                break
        return runs, arrays["out"].numpy(), arrays["final"].numpy() if self.states else None

    def check(self, **options):
        """Right and safe."""
        runs, out, final = self.launch(**options)
        for run in runs.values():
            assert not run.findings, run.findings[0]
        wanted = self.golden()
        tolerance = {"f16": 2e-3, "bf16": 1.2e-2}[self.shape.dtype]
        np.testing.assert_allclose(out.astype(np.float64), wanted.output, atol=tolerance, rtol=tolerance)
        if self.states:
            np.testing.assert_allclose(final, wanted.final_state, atol=4 * tolerance, rtol=4 * tolerance)
