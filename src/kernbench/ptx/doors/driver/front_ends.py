"""Adapts CuPy and Numba to the checks: one allocation per array, and kernels with line information.

Neither changes what a program computes. Both reach the GPU through CUDA's driver, which is another door.
"""

import functools
import sys
from typing import TYPE_CHECKING, Any

from kernbench.ptx.doors.patching import Patches

if TYPE_CHECKING:
    from kernbench.ptx.doors.session import Session


class CupyDoor:
    """Allocates CuPy arrays one by one.

    CuPy's pool allocates pieces of 512 bytes and reuses them: an access just past an array would be inside the pool's
    memory, and `cupy.empty` would contain what another array left there.
    """

    def __init__(self, session: "Session"):
        self._patches = Patches()

    def open(self) -> None:
        """Disable the pool, unless the program sets one."""
        cuda: Any = sys.modules["cupy"].cuda
        before = cuda.get_allocator()
        cuda.set_allocator(None)
        self._patches.later(lambda: cuda.set_allocator(before))

    def close(self) -> None:
        """Restore the pool."""
        self._patches.undo()


class NumbaDoor:
    """Compiles Numba kernels with line information, which changes no instruction."""

    def __init__(self, session: "Session"):
        self._patches = Patches()

    def open(self) -> None:
        """Kernels decorated from now on have line information; explicit options of the program take precedence."""
        kind: Any = getattr(sys.modules.get("numba.cuda.dispatcher"), "CUDADispatcher", None)
        if kind is None:
            return
        make = kind.__init__

        @functools.wraps(make)
        def with_lines(
            dispatcher: object, py_func: object, targetoptions: dict[str, Any], *args: object, **kwargs: object
        ) -> None:
            if not targetoptions.get("debug"):
                targetoptions = {**targetoptions, "lineinfo": True}
            make(dispatcher, py_func, targetoptions, *args, **kwargs)

        self._patches.set(kind, "__init__", with_lines)

    def close(self) -> None:
        """Restore Numba's behaviour."""
        self._patches.undo()
