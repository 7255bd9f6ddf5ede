"""A kernel as data before anything runs: names, operands, blocks of steps, control flow, layout, source lines."""
