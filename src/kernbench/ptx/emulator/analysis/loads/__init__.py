"""Speculative loads, and CAS-validated loads."""
