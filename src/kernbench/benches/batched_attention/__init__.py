"""Decode attention of a batch of sequences in PTX: with one warp per head, and with several warps and split keys."""
