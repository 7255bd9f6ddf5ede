"""The engine of the time model: compiled loops over what warps issued."""
