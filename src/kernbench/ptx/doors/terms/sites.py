"""The line of a program that launches: the innermost frame that belongs neither to kernbench nor to a library."""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType

from kernbench.result.finding import SourceLocation

_OURS = str(Path(__file__).parents[3])
_LIBRARIES = ("triton", "torch", "cutlass", "numba", "numba_cuda", "cupy", "cuda")


@cache
def _is_library(file: str) -> bool:
    if file.startswith((_OURS, "<frozen")):
        return True
    roots = [getattr(sys.modules.get(name), "__path__", ()) for name in _LIBRARIES]
    return any(file.startswith(f"{folder}/") for folders in roots for folder in folders)


def _own_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Frames of the program's own files, innermost first."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not _is_library(file) and not file.startswith("<"):
            yield frame
        frame = frame.f_back


def launch_site() -> SourceLocation | None:
    """The running line of the program as a source location; None if there is none."""
    for frame in _own_frames(sys._getframe(1)):
        return SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
    return None


def own_files() -> list[str]:
    """The program's own files on the call stack, innermost first."""
    return list(dict.fromkeys(frame.f_code.co_filename for frame in _own_frames(sys._getframe(1))))
