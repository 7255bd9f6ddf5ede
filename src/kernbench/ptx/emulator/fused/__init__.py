"""Fusion: consecutive arithmetic steps as one loop of machine code over lanes (docs/adr/0082)."""
