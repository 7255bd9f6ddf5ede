"""Where kernels run: the emulated GPU and a real one, and the host for benches."""
