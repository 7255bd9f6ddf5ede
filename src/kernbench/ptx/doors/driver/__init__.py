"""A library that replaces libcuda.so.1 and libcudart, for programs of CUDA C++, CuPy, Numba and cuda.core."""
