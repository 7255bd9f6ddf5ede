"""Reports in a program's own terms: its source lines, and its front end's names."""
