"""Targets as equals: what a target is asked for (`target`), and which targets there are (`registry`)."""
