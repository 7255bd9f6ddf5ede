"""GPU kernels for attention and the gated delta rule: built in Python, run on the emulator and on the GPU."""
