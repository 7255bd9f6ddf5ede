"""From what a check saw to a `Finding`: source locations, names of threads and arrays, folding."""
