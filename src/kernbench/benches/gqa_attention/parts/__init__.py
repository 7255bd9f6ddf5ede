"""Building blocks of the kernels: shards, tiles, routes, the online softmax, and the exchange of K and V."""
