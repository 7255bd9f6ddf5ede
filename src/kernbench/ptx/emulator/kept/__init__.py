"""A disk cache of decoded programs of long kernels."""
