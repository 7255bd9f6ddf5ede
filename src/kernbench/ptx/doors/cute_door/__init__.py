"""CuTe DSL: its own runtime library runs on our driver library; torch tensors report that they are on a GPU."""
