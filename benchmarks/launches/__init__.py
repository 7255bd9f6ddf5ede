"""How fast the PTX emulator runs Triton kernels of real sizes: at least forty launches, checked and unchecked."""
