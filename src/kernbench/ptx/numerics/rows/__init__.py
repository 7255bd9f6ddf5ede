"""Building blocks: scalar functions over bits, compiled into loops over register rows."""
