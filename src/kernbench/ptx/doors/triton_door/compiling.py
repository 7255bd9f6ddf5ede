"""Triton's NVIDIA backend with another last stage: PTX is loaded directly, and ptxas is not needed."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernbench.ptx.devices.assembler import assemble
from kernbench.ptx.doors.identity import KernelIdentity, digest_of
from kernbench.ptx.doors.terms.blame import Compiler, triton

# magic number of machine code, which is an ELF file
_ELF = b"\x7fELF"
_TARGET = re.compile(r"^\.target\s+(sm_\d+\w*)", re.MULTILINE)


def without_assembler(backend: type) -> type:
    """A backend whose binary is PTX, which the driver loads; its cache entries are separate from those of the real one.

    `asm["ptx"]` of a compiled kernel is text and `asm["cubin"]` bytes, as programs expect.
    """

    class PtxBackend(backend):  # type: ignore[misc]
        """Compiles to PTX."""

        def add_stages(self, stages: Any, options: Any, *language: Any) -> None:
            """All stages, but the assembler's passes the PTX on."""
            super().add_stages(stages, options, *language)
            stages["cubin"] = lambda source, metadata: binary(source)

        def hash(self) -> str:
            """The cache key of this backend; the real one's runs ptxas for its version."""
            return f"kernbench-ptx-as-cubin-{super().hash()}"

    PtxBackend.__name__, PtxBackend.__qualname__ = backend.__name__, backend.__qualname__
    return PtxBackend


def binary(text: str) -> bytes:
    """PTX as an image in memory that the driver loads: terminated by a zero."""
    return text.encode() + b"\0"


def text_of(given: bytes | str) -> str:
    """The PTX text of such an image, or of a text."""
    return given.decode().rstrip("\0") if isinstance(given, bytes) else given


def with_assembler(disassemble: Callable[..., object], programs: Path) -> Callable[..., object]:
    """Triton's function that disassembles machine code; PTX is assembled with ptxas first.

    `programs` is the folder of Triton's own programs, whose ptxas is as new as the PTX.
    """

    def shown(image: bytes, *names: object) -> object:
        return disassemble(image if image.startswith(_ELF) else machine_code(text_of(image), programs), *names)

    return shown


def machine_code(text: str, programs: Path) -> bytes:
    """The machine code of PTX, from Triton's ptxas."""
    target = _TARGET.search(text)
    arch = target[1] if target else "sm_90a"
    # releases with both use the first, which is newer, for some architectures; it supports the others as well
    both = (programs / name for name in ("ptxas-blackwell", "ptxas"))
    found = next((str(program) for program in both if program.exists()), None)
    return assemble(text, arch, ptxas=found).cubin


def identity_of(function: Any) -> KernelIdentity | None:
    """A kernel by its function, whatever it is compiled for; what the function calls is a part of its content.

    Functions with rules for their compilation (`autotune`, `heuristics`) are looked through. None for a kernel that is
    given as code.
    """
    while hasattr(function, "fn") and not hasattr(function, "cache_key"):
        function = function.fn
    code = getattr(getattr(function, "fn", None), "__code__", None)
    if code is None:
        return None
    source = getattr(function, "raw_src", ())
    before = next((number for number, line in enumerate(source) if line.lstrip().startswith("def ")), 0)
    line = code.co_firstlineno + before
    return KernelIdentity(function.__name__, code.co_filename, line, digest_of(function.cache_key))


def compiler_of(function: Any) -> Compiler | None:
    """The compiler of a kernel by its function; None where the program itself may write what only compilers write: in
    Gluon, in inline assembly, and in code of a compiler's own language.
    """
    source = getattr(function, "src", None)
    if source is None or "inline_asm" in source or (hasattr(function, "is_gluon") and function.is_gluon()):
        return None
    import triton as installed

    return triton(installed.__version__)


def with_file(key: Callable[[Any], str]) -> Callable[[Any], str]:
    """A cache key of a kernel's source that includes its file: PTX contains file names."""

    def whole(source: Any) -> str:
        code = getattr(getattr(source.fn, "fn", None), "__code__", None)
        file = getattr(code, "co_filename", "")
        return hashlib.sha256(f"{key(source)} {file}".encode()).hexdigest()

    return whole
