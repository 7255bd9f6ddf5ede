"""Memory that costs what is touched of it, not what exists."""
