"""Asynchronous copies: cp.async, bulk copies, tensor copies, and how they complete."""
