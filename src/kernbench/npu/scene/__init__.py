"""Test classes of folders with C++ kernels: read as they lie, and run on the machine."""
