"""The recording of a launch: rows of operations, the tables they refer to, and the calls that led to them."""
