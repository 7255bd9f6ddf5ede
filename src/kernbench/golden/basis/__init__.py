"""Common parts of all references: arrays of any element type as float64, and a reference with its error bounds."""
