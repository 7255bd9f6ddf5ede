"""Leaving a process without the collections that go through all of its objects.

As Python ends it looks for cycles of objects several times, to end them. With the hundreds of thousands of objects that
a launch leaves behind this takes up to a fifth of a process's CPU time; frozen objects are passed over. What somebody
could miss happens nevertheless: open files are written, and nothing is frozen where objects of the program's own
classes have a `__del__`. (Python does not promise to call it then, and libraries know.)
"""

import gc
import io
import os
import sys
from contextlib import suppress

import kernbench

_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_HOMES = tuple(os.path.join(os.path.dirname(path), "") for path in (os.__file__, kernbench.__file__))


def freeze() -> None:
    """To be called as late as possible (`atexit`): later collections pass over the objects of this process."""
    objects = gc.get_objects()
    kinds = set(map(type, objects))
    if any(_is_of_program(kind) for kind in kinds):
        return
    files = {kind for kind in kinds if issubclass(kind, io.IOBase)}
    for each in objects:
        if type(each) in files:
            # closed, for reading, or broken
            with suppress(Exception):
                each.flush()
    gc.freeze()


def _is_of_program(kind: type) -> bool:
    """Whether objects of a class have a `__del__` of the program itself."""
    return any("__del__" in vars(base) and _is_own(base.__module__) for base in kind.__mro__)


def _is_own(name: object) -> bool:
    file = getattr(sys.modules.get(str(name)), "__file__", None)
    if file is None:
        return name not in sys.stdlib_module_names
    return not file.startswith(_HOMES) and not any(part in file for part in _LIBRARIES)
