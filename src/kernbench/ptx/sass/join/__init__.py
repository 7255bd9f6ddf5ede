"""Recorded traces joined to machine code: anchors, the way that fits, and the streams that come of it."""
