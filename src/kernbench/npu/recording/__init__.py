"""What a launch records: rows of operations, the tables they refer to, and the calls that led to them."""
