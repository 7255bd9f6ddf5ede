"""Processes of a command: a copy that runs a file of a person's own, and several pieces of work at once."""
