"""What the others are built of: scalar functions over bits, compiled into passes over register rows."""
