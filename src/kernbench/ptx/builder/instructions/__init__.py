"""Methods of a context for what a thread, a warp or a block does itself."""
