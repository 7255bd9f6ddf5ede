"""The commands on PTX and on programs that bring it, one file each; none is imported before somebody names it."""
