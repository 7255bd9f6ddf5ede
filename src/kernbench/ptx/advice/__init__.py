"""Advice on timed launches: what each would be without one fault, where that is, what to change, and how sure it is."""
