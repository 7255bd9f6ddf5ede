"""The hardware model of a chip: its description, its lanes, pipes and memories, and the table of tile operations."""
