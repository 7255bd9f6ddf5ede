"""One file per bench, and one folder for each family of kernels that they launch.

Files that begin with an underscore are no benches; two of them are kernels whose names are fixed.
"""
