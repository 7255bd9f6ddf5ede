"""Iterations and calls that are alike: recorded as often as there are, without running each."""
