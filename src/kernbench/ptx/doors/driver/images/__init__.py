"""Images that programs load: PTX text, fat binaries and what they are compressed with."""
