"""Runs for other programs: JUnit XML, Perfetto traces, pictures, plots, notebooks."""
