"""Deadlocks: which threads wait for what, and which exited or diverged instead of arriving."""
