"""The engine under `tl`, and what its parts share."""
