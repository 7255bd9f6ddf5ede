"""Which line of a program launches: the innermost frame that is neither ours nor a library's."""

import sys
from functools import cache
from pathlib import Path
from types import FrameType

from kernbench.result.finding import Place

_OURS = str(Path(__file__).parents[3])
_LIBRARIES = ("triton", "torch", "cutlass", "numba", "numba_cuda", "cupy", "cuda")


@cache
def _is_library(file: str) -> bool:
    if file.startswith((_OURS, "<frozen")):
        return True
    roots = [getattr(sys.modules.get(name), "__path__", ()) for name in _LIBRARIES]
    return any(file.startswith(f"{folder}/") for folders in roots for folder in folders)


def launch_site() -> Place | None:
    """The line that is at work, as a source location; None where there is none but ours."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_library(file) and not file.startswith("<"):
            return Place(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None
