"""Triton's NVIDIA backend without its last step: the PTX is what is loaded, and no assembler is needed."""

import hashlib
from collections.abc import Callable
from typing import Any


def without_assembler(backend: type) -> type:
    """A backend that ends with PTX; what it compiled is kept apart from what the real one did."""

    class PtxBackend(backend):  # type: ignore[misc]
        """Compiles to PTX."""

        def __init__(self, target: Any):
            super().__init__(target)
            self.binary_ext = "ptx"

        def add_stages(self, stages: Any, options: Any, *language: Any) -> None:
            """All stages but the assembler's."""
            super().add_stages(stages, options, *language)
            stages.pop("cubin", None)

        def hash(self) -> str:
            """What distinguishes this backend's files; the real one's asks ptxas for its version."""
            return f"kernbench-ptx-{super().hash()}"

    PtxBackend.__name__, PtxBackend.__qualname__ = backend.__name__, backend.__qualname__
    return PtxBackend


def with_file(key: Callable[[Any], str]) -> Callable[[Any], str]:
    """A key of a kernel's source that distinguishes the same text in two files: PTX holds their names."""

    def whole(source: Any) -> str:
        code = getattr(getattr(source.fn, "fn", None), "__code__", None)
        file = getattr(code, "co_filename", "")
        return hashlib.sha256(f"{key(source)} {file}".encode()).hexdigest()

    return whole
