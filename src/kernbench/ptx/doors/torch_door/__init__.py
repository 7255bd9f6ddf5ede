"""torch's CPU build with tensors that stand for CUDA tensors.

A tensor is on the device if its storage is in device memory. Everything else follows from that: `is_cuda`, `device`,
where results of operators go, and what kernels may access.
"""
