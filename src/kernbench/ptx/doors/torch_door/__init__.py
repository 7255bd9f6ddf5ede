"""torch on a CPU build, with tensors that pass for CUDA ones.

A tensor is on the device where its storage lies in the device's memory. Everything else follows: `is_cuda`, `device`,
what operators give, and what a kernel may be passed.
"""
