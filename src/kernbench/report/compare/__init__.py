"""Comparing several runs: titles, differences, ranking by time with reasons."""
