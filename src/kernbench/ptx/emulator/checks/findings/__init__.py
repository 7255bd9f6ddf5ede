"""From what a check observed to a `Finding`: source locations, names of threads and arrays, folding."""
