"""Checks written once and used by all targets: source places, memory, waits and deadlocks, budgets."""
