"""Microbenchmarks that measure the figures of a GPU's file, and the fits that turn them into one."""
