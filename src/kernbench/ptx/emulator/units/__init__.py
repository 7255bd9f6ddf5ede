"""A batch with all its units, as instructions, analyses and checks reach it."""
