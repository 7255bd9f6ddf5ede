"""Sets of lanes and the rows they work on: registers by slot, windows, fragments, clusters."""
