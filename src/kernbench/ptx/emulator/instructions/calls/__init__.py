"""Calls of functions, and of external functions such as printf."""
