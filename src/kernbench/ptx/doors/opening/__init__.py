"""How doors are opened: in this process, around a test, or in a program under `kernbench exec`."""
