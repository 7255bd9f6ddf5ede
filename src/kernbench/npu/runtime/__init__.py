"""The runtime of orchestration functions: scopes, rings, the tensor map, and values that they read and write."""
