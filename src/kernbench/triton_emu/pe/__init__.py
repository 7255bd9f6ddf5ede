"""What a PE has behind a kernel: scratch memory, and the port to its machine."""
