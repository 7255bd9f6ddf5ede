"""Data flow over registers, what a loaded value decides, and steps beside an instruction."""
