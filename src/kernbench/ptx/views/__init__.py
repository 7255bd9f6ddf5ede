"""Views of a launch, as data to draw: the barrier pipeline of its warps, and their timeline."""
