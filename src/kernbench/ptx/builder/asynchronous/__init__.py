"""Methods of a context for copies and barriers that work beside the threads, and for clusters."""
