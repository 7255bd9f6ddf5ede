"""Methods of a context for asynchronous copies, barriers in memory, and clusters."""
