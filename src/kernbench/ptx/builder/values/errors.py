"""What a builder refuses, and at which Python line."""

from kernbench.common.errors import KernbenchError
from kernbench.result.finding import Place
from kernbench.safety.places import SiteTable

__kernbench_internal__ = True


class PtxBuildError(KernbenchError):
    """A kernel that cannot be built; `where` is the line of the Python program that asks for it."""

    def __init__(self, message: str, where: Place | None = None):
        super().__init__(message)
        self.message = message
        self.where = where or SiteTable([]).place_here()

    def __reduce__(self) -> tuple[type, tuple[str, Place]]:
        return type(self), (self.message, self.where)

    def __str__(self) -> str:
        text = self.where.text
        return f"{self.where}: {self.message}" + (f"\n    {text}" if text else "")


class UnknownMethodError(PtxBuildError, AttributeError):
    """A method that the context does not have; `hasattr` still answers no."""
