"""Decode attention of a batch of sequences in PTX: one warp for each head, and several warps with split keys."""
