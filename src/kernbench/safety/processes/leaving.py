"""Leaving a process with one collection in place of several that go through all of its objects.

As Python ends it looks for cycles of objects several times, to end them. With the hundreds of thousands of objects that
a launch leaves behind this takes up to a fifth of a process's CPU time; frozen objects are passed over. They thaw when
the modules are gone and with them most objects, before the last collection: some extension modules count the objects
that did not end, and say so (nanobind, with which Triton is made), others write or close something at such an end.

What somebody could miss happens as well: open files are written, and nothing is frozen where objects of the program's
own classes have a `__del__`. (Python does not promise to call it then, and libraries know.)
"""

import gc
import io
import os
import sys
from contextlib import suppress

import kernbench

_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_HOMES = tuple(os.path.join(os.path.dirname(path), "") for path in (os.__file__, kernbench.__file__))


class _Thaw:
    """Ends when the names of `sys` do, which is after all modules' and before the last collection."""

    def __init__(self) -> None:
        # no name of a module is left by then
        self._thaw = gc.unfreeze

    def __del__(self) -> None:
        self._thaw()


def freeze() -> None:
    """To be called as late as possible (`atexit`): all collections but the last pass over this process's objects."""
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
    vars(sys)["kernbench leaves"] = _Thaw()
    gc.freeze()


def _is_of_program(kind: type) -> bool:
    """Whether objects of a class have a `__del__` of the program itself."""
    return any("__del__" in vars(base) and _is_own(base.__module__) for base in kind.__mro__)


def _is_own(name: object) -> bool:
    file = getattr(sys.modules.get(str(name)), "__file__", None)
    if file is None:
        return name not in sys.stdlib_module_names
    return not file.startswith(_HOMES) and not any(part in file for part in _LIBRARIES)
