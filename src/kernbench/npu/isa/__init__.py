"""What a chip is and can do: its description, its lanes, pipes and memories, and the table of tile operations."""
