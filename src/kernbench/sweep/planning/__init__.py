"""The plan of a sweep: values of its axes, groups of points, their order, and their rows."""
