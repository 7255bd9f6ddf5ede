"""Memory of the emulated device: the global arena, per-CTA shared and per-thread local memory, and compiled access."""
