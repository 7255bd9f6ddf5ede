"""Happens-before among pipes and among blocks, and the findings on accesses that it does not order."""
