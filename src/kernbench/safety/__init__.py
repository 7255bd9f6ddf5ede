"""Checks shared by all targets: source locations, memory, waits and deadlocks, budgets."""
