"""Tasks and the state they share: tensors in device memory with their shadow state, FIFOs, signals and predicates."""
