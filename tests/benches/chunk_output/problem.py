"""Problems for the chunk-output kernels, launched and held against the golden."""

from dataclasses import dataclass, field

import numpy as np

from kernbench import ptx
from kernbench.benches.chunk_output.layout import CHUNK, Layout
from kernbench.golden import compare
from kernbench.golden.gated_delta_rule import kernel_inputs


@dataclass
class Problem:
    """Sequences of these lengths, and what a kernel reads for them; memory nobody may use is NaN."""

    lengths: tuple[int, ...]
    layout: Layout
    gate: float = 3.0
    given: dict = field(init=False)

    def __post_init__(self):
        rng, layout, rows = np.random.default_rng(0), self.layout, sum(self.lengths)
        q, k = (rng.standard_normal((rows, layout.heads, layout.key_size)) for _ in range(2))
        v = rng.standard_normal((rows, layout.value_heads, layout.value_size))
        gates, betas = (
            1 / (1 + np.exp(-rng.standard_normal((rows, layout.value_heads)) - shift)) for shift in (self.gate, 0.0)
        )
        k /= np.linalg.norm(k, axis=-1, keepdims=True)
        starts = np.cumsum([0, *self.lengths])
        self.made = made = kernel_inputs(q, k, v, np.log(gates), betas, cu_seqlens=starts, padding=np.nan)
        self.given = {name: getattr(made, name) for name in ("q", "k", "h", "g", "cu_seqlens", "chunk_indices")}
        self.given |= {"total_chunks": made.total_chunks, "v_new": made.v_new}
        if layout.values == "packed":
            whole = made.v_new[: made.chunks.total * CHUNK].reshape(made.chunks.total, CHUNK, *made.v_new.shape[1:])
            self.given["v_new"] = made.chunks.unpad(whole)

    def launch(self, way, blocks=1, kernel=None, device="emulator", **options):
        """The run, and the verdict on its output (None if it has none)."""
        host = ptx.Host(device, way.target)
        out = host.empty(self.made.output_shape, "bf16", "o")
        args = self.layout.arguments(host, self.given, out, self.made.scale)
        grid = blocks, 1 if getattr(way, "flat", False) else self.layout.value_heads
        run = host.launch(kernel or way.build(), grid, way.threads, args, way.shared_bytes, outputs=[out], **options)
        found = run.outputs.get("o")
        return run, None if found is None else compare(found, self.made.reference(), compute_dtype="bf16")
