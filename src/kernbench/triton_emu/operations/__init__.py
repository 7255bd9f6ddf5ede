"""The operations of `tl`, a file for each part of it, and what they compute."""
