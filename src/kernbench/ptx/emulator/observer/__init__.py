"""Observers: the events that the emulator reports as it runs, to the checks or to a null observer."""
