"""What is wrong with an image."""

from kernbench.common.errors import KernbenchError


class ImageError(KernbenchError):
    """An image that cannot be read or holds nothing that can be run; says what would help."""
