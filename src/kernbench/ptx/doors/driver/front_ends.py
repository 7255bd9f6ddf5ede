"""CuPy and Numba as the checks need them: arrays with memory of their own, and kernels that know their lines.

Neither changes what a program computes. Both reach the GPU by way of CUDA's driver, which is another door.
"""

import functools
import sys
from typing import TYPE_CHECKING, Any

from kernbench.ptx.doors.patching import Patches

if TYPE_CHECKING:
    from kernbench.ptx.doors.session import Session


class CupyDoor:
    """Arrays of CuPy are allocated one by one.

    Its pool hands out pieces of 512 bytes and hands them out again: an access right behind an array would lie in memory
    of the pool, and what `cupy.empty` gives would hold what another array left there.
    """

    def __init__(self, session: "Session"):
        self._patches = Patches()

    def open(self) -> None:
        """No pool, unless the program asks for one."""
        cuda: Any = sys.modules["cupy"].cuda
        before = cuda.get_allocator()
        cuda.set_allocator(None)
        self._patches.later(lambda: cuda.set_allocator(before))

    def close(self) -> None:
        """The pool again."""
        self._patches.undo()


class NumbaDoor:
    """Kernels of Numba are compiled with the lines of their Python source, which changes no instruction."""

    def __init__(self, session: "Session"):
        self._patches = Patches()

    def open(self) -> None:
        """What is decorated from now on has lines; what a program asks for itself stays."""
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
        """As Numba does it."""
        self._patches.undo()
