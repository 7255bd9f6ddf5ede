"""Sets of lanes and the rows of registers that they work on: slots, windows, fragments, clusters."""
