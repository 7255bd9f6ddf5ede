"""Names that compilers gave, as people wrote them."""
