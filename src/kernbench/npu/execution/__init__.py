"""Runs the blocks of submitted tasks on cores: scheduling, core allocation, and inspection of a running core."""
