"""Checks all benches of a folder, each file in a process of its own."""
