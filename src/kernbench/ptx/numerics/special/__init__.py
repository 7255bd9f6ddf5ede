"""The unit of an NVIDIA GPU that gives approximate functions: tables, a quadratic in each slice, and its cuts."""
