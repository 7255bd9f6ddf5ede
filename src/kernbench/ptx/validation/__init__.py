"""Validates a module against the ISA table and the rules of ptxas."""
