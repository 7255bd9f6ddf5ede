"""Inspection of a launch: values that a kernel names, stops, and the types of arrays."""
