"""Joins recorded traces to machine code: finds anchors, then the best path, and makes streams of it."""
