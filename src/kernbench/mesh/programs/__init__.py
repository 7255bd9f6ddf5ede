"""The programs of a launch: their PEs, scheduling, queues and memory."""
