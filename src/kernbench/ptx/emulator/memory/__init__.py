"""Memory of the emulated device: global arena, per-CTA shared memory, per-thread local memory, and compiled access."""
