"""The time of a recording: costs, the graph for the shared timing engine, blocks on cores, and what is shown of it."""
