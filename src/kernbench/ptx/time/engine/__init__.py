"""The engine of the time model: compiled loops over the instructions that warps issued."""
