"""Timing of a recording: costs, the graph for the shared timing engine, block placement, and the results shown."""
