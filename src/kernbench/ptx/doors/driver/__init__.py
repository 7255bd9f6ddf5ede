"""A library that stands in for libcuda.so.1 and libcudart: programs of CUDA C++, CuPy, Numba, cuda.core."""
