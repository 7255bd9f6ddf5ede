"""Timing shared by all targets: graphs of commands, and the engine that plays them against rates.

The cost of a command, its dependences and the causes of lost time belong to each target's package.
"""
