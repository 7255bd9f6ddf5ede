"""The bundled benches: one file each, and one folder for each family of kernels that they launch.

Files that begin with an underscore are not benches; two of them are kernels whose names are fixed.
"""
