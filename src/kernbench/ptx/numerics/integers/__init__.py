"""Integer arithmetic, logic and bit fields, byte permutation, video instructions."""
