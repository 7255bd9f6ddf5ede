"""Calls of functions, and the functions that no module defines."""
