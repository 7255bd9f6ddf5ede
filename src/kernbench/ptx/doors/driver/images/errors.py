"""Errors in images."""

from kernbench.common.errors import KernbenchError


class ImageError(KernbenchError):
    """An image that cannot be read or contains nothing that can be run; the message says what would help."""
