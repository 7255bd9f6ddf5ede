"""The operations of the executor, each a function over the 32 lanes of a warp."""
