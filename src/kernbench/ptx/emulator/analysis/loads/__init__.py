"""Loads whose value does not matter: speculative ones, and those a compare-and-swap validates."""
