"""Distributed grouped-query attention on the mesh: one kernel in each `attention_NAME.py`, and their limits."""
