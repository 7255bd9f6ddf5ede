"""Rows of matrix instructions."""
