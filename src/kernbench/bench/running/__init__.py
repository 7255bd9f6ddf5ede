"""Running a bench: launch and verdict, a second order, the first wrong value, stopping on the way."""
