"""GPU kernels that people use: built in Python, run on the emulator and on the GPU."""
