"""What the emulator reports as it runs, to whoever looks: the checks, or nobody."""
