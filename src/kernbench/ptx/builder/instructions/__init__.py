"""Methods of a context for synchronous instructions of threads, warps and blocks."""
