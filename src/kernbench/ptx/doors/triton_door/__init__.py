"""Triton through its own driver interface: kernels are compiled to PTX and launched on a session's GPU."""
