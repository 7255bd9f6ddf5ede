"""Microbenchmarks by what they measure; `registry.py` lists them in the order in which figures are fitted."""
