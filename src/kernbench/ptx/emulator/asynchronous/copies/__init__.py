"""Copies that run beside the threads: cp.async, bulk copies, tensor copies, and how they complete."""
