"""A decoded kernel as data: names, operands, basic blocks of steps, control flow, layout, source lines."""
