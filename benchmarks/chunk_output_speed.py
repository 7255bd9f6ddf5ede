"""How long the chunk output of the gated delta rule takes, 16 and 32 heads of 128, whole and ragged sequences.

On the emulator: CPU seconds of one core, checked and unchecked, for growing numbers of rows, beside the aims; with
`--device cuda`: microseconds of the GPU, and the share of memory bandwidth that is. A time counts only if the result is
right. Run with one BLAS thread.
"""

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench import ptx
from kernbench.bench import find, parameters_of
from kernbench.golden import compare
from kernbench.result.run import Run

BENCH = find("gated_delta_rule_chunk_output")
ROWS = (1024, 2048, 4096)
HEADS, VALUE_HEADS, SIZE = 16, 32, 128
MOST_CHECKED, MOST_UNCHECKED = 15.0, 5.0
# bytes per second of an H200
BANDWIDTH = 4.8e12


@dataclass
class Problem:
    """Inputs of one kernel, and what must come out."""

    kernel: str
    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        settings = {"kernel": self.kernel, "lengths": self.lengths, "heads": HEADS, "value_heads": VALUE_HEADS}
        self.p = parameters_of(BENCH, None, settings)
        self.given = BENCH.inputs(self.p, np.random.default_rng(0))
        self.expected = BENCH.golden(self.p, self.given)["o"]

    def launch(self, device: str, **options: Any) -> tuple[float, Run]:
        """CPU seconds of one launch, and its run, which is right and safe."""
        host = ptx.Host(device, self.kernel)
        out = host.empty((len(self.given["q"]), VALUE_HEADS, SIZE), "bf16", "o")
        args = self.p.layout.arguments(host, self.given, out, self.p.scale)
        way = self.p.way
        kernel = way.build()
        began = time.process_time()
        run = host.launch(kernel, self.p.grid, way.threads, args, way.shared_bytes, outputs=[out], **options)
        seconds = time.process_time() - began
        assert not run.findings, run.findings
        verdict = compare(run.outputs["o"], self.expected.reference, compute_dtype="bf16")
        assert verdict.passed, verdict.reason
        return seconds, run

    @property
    def nbytes(self) -> int:
        """What must move at least once: every operand, and the output."""
        names = ("q", "k", "v_new", "h", "g")
        return sum(self.given[name].nbytes for name in names) + self.given["v_new"].nbytes


def emulated(kernel: str) -> None:
    """CPU seconds over rows, checked and unchecked."""
    Problem(kernel, (128,)).launch("emulator")
    for rows in ROWS:
        problem = Problem(kernel, (rows,))
        checked, unchecked = (problem.launch("emulator", checks=checks)[0] for checks in (True, False))
        aims = f" (aims: {MOST_CHECKED:.0f} and {MOST_UNCHECKED:.0f})" if rows == ROWS[-1] else ""
        each = f"{1e3 * checked / rows:.2f} and {1e3 * unchecked / rows:.2f} ms a row"
        print(f"{kernel}, {rows} rows: {checked:.1f} s checked, {unchecked:.1f} s unchecked{aims}; {each}", flush=True)


def on_gpu(kernel: str) -> None:
    """Microseconds of the GPU, the median of repeated launches."""
    for lengths in ((4096,), (1000, 0, 2048, 1, 1047), (8192,)):
        problem = Problem(kernel, lengths)
        _, run = problem.launch("cuda", repetitions=50)
        seconds = run.metrics["gpu_time_ns"] / 1e9
        share = problem.nbytes / seconds / BANDWIDTH
        print(
            f"{kernel}, rows {lengths}: {1e6 * seconds:.1f} us, {problem.nbytes / seconds / 1e12:.2f} TB/s, {share:.0%}"
        )


def main() -> None:
    """Print the figures of the kernels that the device runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("emulator", "cuda"), default="emulator")
    parser.add_argument("--kernel", action="append", help="sm_90a, sm_100a; both by default, on a GPU its own")
    given = parser.parse_args()
    for kernel in given.kernel or (["sm_90a"] if given.device == "cuda" else ["sm_90a", "sm_100a"]):
        (on_gpu if given.device == "cuda" else emulated)(kernel)


if __name__ == "__main__":
    main()
