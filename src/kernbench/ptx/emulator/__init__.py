"""The vectorised PTX emulator: each instruction runs for all lanes of all resident CTAs that stand at it, at once."""
