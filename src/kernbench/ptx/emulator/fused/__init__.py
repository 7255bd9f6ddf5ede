"""Runs of steps that only compute, as one loop of machine code over lanes (docs/adr/0082)."""
