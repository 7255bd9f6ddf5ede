"""Kernels and orchestrations in C++: compiled for the host, run in a process of their own, executed by the machine."""
