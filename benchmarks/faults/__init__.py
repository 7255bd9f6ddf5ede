"""Textbook faults of CUDA kernels beside the mended kernels: does the first advice name the fault, and its cost?"""
