"""Programs of long kernels, kept on disk from one process to the next."""
