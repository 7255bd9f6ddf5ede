"""Findings, verdicts and tables as text for a terminal."""
