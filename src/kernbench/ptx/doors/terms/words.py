"""Terms of front ends: hints use the names of the front end that a kernel comes from."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernbench.ptx.emulator.checks.findings import advice
from kernbench.result.finding import Finding

# mangled names of kernels of these front ends: Numba's have the function's version as an ABI tag
_NUMBA, _CUTE = re.compile(r"_ZN.*B\d+v\d+"), "kernel_cutlass"


@dataclass(frozen=True)
class Words:
    """A front end's terms in hints; `shared_barrier` is for threads that share a block's memory."""

    made: str
    on_device: str
    barrier: str
    shared_barrier: str
    bounds: str = advice.BOUNDS
    widen: str = advice.WIDEN

    def fit(self, findings: Sequence[Finding]) -> list[Finding]:
        """Findings with hints in these terms."""
        return [replace(finding, hint=self.put(finding.hint)) if finding.hint else finding for finding in findings]

    def put(self, hint: str) -> str:
        """A hint in these terms."""
        for general, own in (
            (advice.MADE, self.made),
            (advice.ON_DEVICE, self.on_device),
            (advice.BARRIER, self.barrier),
            (advice.SHARED_BARRIER, self.shared_barrier),
            (advice.BOUNDS, self.bounds),
            (advice.WIDEN, self.widen),
        ):
            hint = hint.replace(general, own)
        return hint


_C_BARRIERS = ("__syncthreads", "__syncthreads, lanes of one warp by __syncwarp")
TRITON = Words(
    "torch.zeros",
    "a tensor on 'cuda'",
    "tl.debug_barrier",
    advice.SHARED_BARRIER,
    bounds="give the access a mask (mask=offsets < size), look at strides and offsets",
    widen="compute offsets in 64 bits, as by .to(tl.int64) before the product",
)
CUDA = Words("cudaMemset or a copy", "memory of cudaMalloc", *_C_BARRIERS)
CUPY = Words("cupy.zeros", "a cupy.ndarray", *_C_BARRIERS)
NUMBA = Words(
    "cuda.to_device",
    "an array of cuda.to_device or cuda.device_array",
    "cuda.syncthreads",
    "cuda.syncthreads, lanes of one warp by cuda.syncwarp",
)
CUTE = Words(
    "torch.zeros, or a copy",
    "a tensor on 'cuda'",
    "cute.arch.sync_threads",
    "cute.arch.sync_threads, lanes of one warp by cute.arch.sync_warp",
)


def words_of(kernel: str) -> Words:
    """The terms for a kernel launched through CUDA's driver, by its name in the PTX."""
    if _NUMBA.match(kernel):
        return NUMBA
    if kernel.startswith(_CUTE):
        return CUTE
    return CUPY if "cupy" in sys.modules else CUDA
