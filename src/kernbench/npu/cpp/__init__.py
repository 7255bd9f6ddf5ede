"""Kernels and orchestrations in C++: compiled for the host and run in a separate process; the chip model executes their
operations.
"""
