"""A batch with all its units, as seen by instructions, analyses and checks."""
