"""Divides the rest of a mesh launch over several processes whose ranks exchange messages (docs/adr/0109)."""
