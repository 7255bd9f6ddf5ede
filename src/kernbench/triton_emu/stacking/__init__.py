"""Iterations that are computed several at once: functions of which that is known, loads and stores, lists of calls."""
