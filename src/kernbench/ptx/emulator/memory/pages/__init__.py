"""Memory that is allocated page by page on first touch."""
