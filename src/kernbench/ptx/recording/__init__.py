"""What a launch on the emulator did, in columns: recorded once, timed for many machines."""
