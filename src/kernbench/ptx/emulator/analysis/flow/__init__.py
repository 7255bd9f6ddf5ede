"""Data flow over registers, control dependence of stores on loaded values, and checks beside instructions."""
