"""Names as compilers mangled them, converted back to those in the source."""
