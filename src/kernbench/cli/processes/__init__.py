"""Processes of commands: a forked copy for user files, and several tasks in parallel."""
