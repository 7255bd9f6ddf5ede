"""Errors of the builder, with the Python line."""

from kernbench.common.errors import KernbenchError
from kernbench.result.finding import SourceLocation
from kernbench.safety.source_locations import SiteTable

__kernbench_internal__ = True


class PtxBuildError(KernbenchError):
    """A kernel that cannot be built; `where` is the offending line of the Python program."""

    def __init__(self, message: str, where: SourceLocation | None = None):
        super().__init__(message)
        self.message = message
        self.where = where or SiteTable([]).location_here()

    def __reduce__(self) -> tuple[type, tuple[str, SourceLocation]]:
        return type(self), (self.message, self.where)

    def __str__(self) -> str:
        text = self.where.text
        return f"{self.where}: {self.message}" + (f"\n    {text}" if text else "")


class UnknownMethodError(PtxBuildError, AttributeError):
    """A method that the context does not have; an AttributeError, so that `hasattr` works."""
