"""The runtime an orchestration function submits to: scopes, rings, the tensor map, and values it reads and writes."""
