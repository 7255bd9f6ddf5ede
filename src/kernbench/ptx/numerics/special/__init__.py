"""The special function unit (MUFU) of NVIDIA GPUs: tables, quadratic interpolation, and its truncations."""
