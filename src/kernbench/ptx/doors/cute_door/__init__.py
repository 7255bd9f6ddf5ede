"""CuTe DSL: its own runtime library runs on the driver library; tensors say that they lie on a GPU."""
