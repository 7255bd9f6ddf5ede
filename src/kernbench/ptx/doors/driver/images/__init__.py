"""Images that programs load: PTX text and fat binaries, with decompression."""
