"""What a launch did, as data to draw: the pipeline of warps, and a timeline."""
