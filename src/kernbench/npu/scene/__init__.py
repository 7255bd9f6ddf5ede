"""Test classes of folders with C++ kernels: read unchanged, and run on a simulated chip."""
