"""The programs of a launch: where they run, how they take turns, their queues and their memory."""
