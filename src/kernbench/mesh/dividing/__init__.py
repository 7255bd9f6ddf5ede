"""What is left of a launch of the mesh in several processes: ranks that send each other messages (docs/adr/0109)."""
