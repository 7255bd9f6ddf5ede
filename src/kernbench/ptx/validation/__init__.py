"""A module against the ISA table, and against what an assembler takes."""
