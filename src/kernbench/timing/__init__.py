"""What all targets share of time: graphs of commands, and the engine that plays them against rates.

What a command costs, what waits for what, and where the time went is each target's own and lies in its package.
"""
