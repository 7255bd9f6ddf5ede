"""Runs one launch on two devices from the same bytes.

Whether they agree, and if not, the first diverging instruction.
"""
