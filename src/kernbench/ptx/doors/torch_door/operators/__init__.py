"""Operators of torch that a GPU computes differently from a CPU, or alone."""
