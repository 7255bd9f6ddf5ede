"""What runs beside the threads: asynchronous operations, the barriers they complete on, and clusters."""
