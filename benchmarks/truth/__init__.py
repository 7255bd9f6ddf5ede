"""Kernels and shapes whose time on a GPU a model is held to, and how that time is measured."""
