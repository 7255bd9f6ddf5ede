"""Triton's NVIDIA backend with another last step: the PTX is what is loaded, and no assembler is needed."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernbench.ptx.devices.assembler import assemble

# the first bytes of machine code, which is an ELF file
_ELF = b"\x7fELF"
_TARGET = re.compile(r"^\.target\s+(sm_\d+\w*)", re.MULTILINE)


def without_assembler(backend: type) -> type:
    """A backend whose binary is the PTX, as text that the driver loads; what it compiled is kept apart from what the
    real one did.

    `asm["ptx"]` of a compiled kernel is text and `asm["cubin"]` bytes, as programs expect.
    """

    class PtxBackend(backend):  # type: ignore[misc]
        """Compiles to PTX."""

        def add_stages(self, stages: Any, options: Any, *language: Any) -> None:
            """All stages, but the assembler's hands the PTX on."""
            super().add_stages(stages, options, *language)
            stages["cubin"] = lambda source, metadata: binary(source)

        def hash(self) -> str:
            """What distinguishes this backend's files; the real one's asks ptxas for its version."""
            return f"kernbench-ptx-as-cubin-{super().hash()}"

    PtxBackend.__name__, PtxBackend.__qualname__ = backend.__name__, backend.__qualname__
    return PtxBackend


def binary(text: str) -> bytes:
    """A PTX text as the driver loads it from memory: it ends with a zero."""
    return text.encode() + b"\0"


def text_of(given: bytes | str) -> str:
    """The PTX text of such a binary, or of a text."""
    return given.decode().rstrip("\0") if isinstance(given, bytes) else given


def with_assembler(disassemble: Callable[..., object], programs: Path) -> Callable[..., object]:
    """Triton's function that shows machine code, where it is shown PTX: ptxas assembles that first.

    `programs` is the folder of Triton's own programs, whose ptxas is as new as the PTX.
    """

    def shown(image: bytes, *names: object) -> object:
        return disassemble(image if image.startswith(_ELF) else machine_code(text_of(image), programs), *names)

    return shown


def machine_code(text: str, programs: Path) -> bytes:
    """What ptxas makes of PTX by Triton's compiler."""
    target = _TARGET.search(text)
    arch = target[1] if target else "sm_90a"
    # releases that have both use the first, which is newer, for some architectures; it knows the others as well
    both = (programs / name for name in ("ptxas-blackwell", "ptxas"))
    found = next((str(program) for program in both if program.exists()), None)
    return assemble(text, arch, ptxas=found).cubin


def with_file(key: Callable[[Any], str]) -> Callable[[Any], str]:
    """A key of a kernel's source that distinguishes the same text in two files: PTX holds their names."""

    def whole(source: Any) -> str:
        code = getattr(getattr(source.fn, "fn", None), "__code__", None)
        file = getattr(code, "co_filename", "")
        return hashlib.sha256(f"{key(source)} {file}".encode()).hexdigest()

    return whole
