"""A core as a kernel sees it: tiles, and the operations on them as methods, from vector operations to transfers."""
