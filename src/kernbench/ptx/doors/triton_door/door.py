"""The door for Triton."""

import importlib
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import triton

from kernbench.common.errors import MisuseError
from kernbench.ptx.doors.patching import Patches
from kernbench.ptx.doors.session import Session
from kernbench.ptx.doors.triton_door.compiling import with_assembler, with_file, without_assembler
from kernbench.ptx.doors.triton_door.tuning import Dry, Tuning

# supported releases, whose driver interface was read; tests have run with 3.2, 3.4, 3.5, 3.6 and 3.9
OLDEST, NEWEST = (3, 2), (3, 9)
# from this release on, loading also returns the most threads of a block
_WITH_THREADS = (3, 4)


def version_of(text: str) -> tuple[int, int]:
    """Major and minor version of a release."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


class TritonDoor:
    """The door for Triton, for one session."""

    def __init__(self, session: Session):
        self._session = session
        self._patches = Patches()
        self._dry = Dry()
        self._driver: Any = None

    def open(self) -> None:
        """Make the session's GPU Triton's active driver."""
        version = version_of(triton.__version__)
        oldest, newest = (".".join(map(str, release)) for release in (OLDEST, NEWEST))
        if version < OLDEST:
            raise MisuseError(f"Triton {triton.__version__} is too old to run here: install {oldest} or newer")
        if version > NEWEST:
            warnings.warn(
                f"kernbench knows how Triton {oldest} to {newest} launch; {triton.__version__} may do it otherwise",
                stacklevel=2,
            )
        # imported here, as other releases lack these modules
        from triton.runtime.driver import driver as drivers

        from kernbench.ptx.doors.triton_door.driver import EmulatedDriver

        _forget_the_device()
        self._patches.later(_forget_the_device)
        self._compile_to_ptx()
        self._replace_cublas()
        self._driver = EmulatedDriver(self._session, self._dry, 5 if version >= _WITH_THREADS else 4)
        before = drivers.__dict__.get("_active", drivers.__dict__.get("active"))
        drivers.set_active(self._driver)
        Tuning(self._session, self._dry).install(self._patches)
        self._patches.later(lambda: drivers.set_active(before))

    def close(self) -> None:
        """Restore Triton's driver; kernels compiled for this GPU are dropped."""
        self._patches.undo()
        for function in self._driver.functions if self._driver is not None else ():
            for name in ("device_caches", "cache"):
                known: Any = getattr(function, name, None)
                if hasattr(known, "clear"):
                    known.clear()
        self._driver = None

    def _replace_cublas(self) -> None:
        """Replace cuBLAS for programs that compare with it, if torch is installed."""
        nvidia: Any = getattr(importlib.import_module("triton._C.libtriton"), "nvidia", None)
        if hasattr(getattr(nvidia, "cublas", None), "CublasLt") and find_spec("torch") is not None:
            from kernbench.ptx.doors.triton_door.cublas import CublasLt

            self._patches.set(nvidia.cublas, "CublasLt", CublasLt)

    def _compile_to_ptx(self) -> None:
        """Make the NVIDIA backend end with PTX."""
        from triton.backends import Backend, backends
        from triton.compiler import compiler
        from triton.compiler.compiler import ASTSource

        found = backends.get("nvidia")
        if found is None:
            known = ", ".join(backends) or "none"
            raise MisuseError(f"this Triton has no NVIDIA backend, which writes PTX; it has: {known}")
        programs = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
        # findings name source files, which Triton's cache key leaves out
        self._patches.set(ASTSource, "hash", with_file(ASTSource.hash))
        if hasattr(compiler, "get_sass"):
            self._patches.set(compiler, "get_sass", with_assembler(compiler.get_sass, programs))
        self._patches.item(backends, "nvidia", Backend(without_assembler(found.compiler), found.driver))


def _forget_the_device() -> None:
    """Clear Triton's cached device properties."""
    from triton.compiler import compiler

    forget = getattr(getattr(compiler, "max_shared_mem", None), "cache_clear", None)
    if forget is not None:
        forget()
