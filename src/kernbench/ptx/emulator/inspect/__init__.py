"""Looking inside a launch: values that a kernel names, stops, and the types of arrays."""
