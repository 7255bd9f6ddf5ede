"""Sources of the kernels that compilers made PTX of."""
