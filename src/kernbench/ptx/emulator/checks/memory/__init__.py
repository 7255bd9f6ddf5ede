"""Checks of memory accesses: bounds, races, undefined values, copies in flight."""
