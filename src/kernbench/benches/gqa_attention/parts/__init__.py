"""What the kernels are made of: shards, tiles, routes, the online softmax, and how K and V travel."""
