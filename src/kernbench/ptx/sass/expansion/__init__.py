"""Expansion: the machine instructions that PTX usually becomes, for use without an assembler."""
