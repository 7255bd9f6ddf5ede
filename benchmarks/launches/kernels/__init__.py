"""The kernels of the benchmark, by family, each with the launch that runs it and what must come out."""
