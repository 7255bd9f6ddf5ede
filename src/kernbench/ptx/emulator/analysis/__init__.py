"""Static analyses of a program before it runs."""
