"""The `tl` language: kernels call it on handles; it checks, records, and inside a launch computes."""

from kernbench.triton_emu.tl_context import TLContext, run_kernel

__all__ = ["TLContext", "run_kernel"]
