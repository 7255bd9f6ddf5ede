"""Asynchronous execution: operations, the barriers they complete on, and clusters."""
