"""Running a bench: launch and verdict, a second order, the first wrong value, stopping inside a kernel."""
