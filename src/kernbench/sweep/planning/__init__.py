"""What a sweep is to run: values of its axes, groups of points, their order, and the rows they give."""
