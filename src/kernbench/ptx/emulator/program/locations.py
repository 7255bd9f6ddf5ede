"""Source locations from `.loc`: the whole chain of inlined functions, and which of its lines to show.

The line to show is one of the user's own. If the kernel is in a file of the user's, it is the innermost line in that
file; if the kernel is a library's (CUTLASS's `device_kernel` runs a functor), the innermost line outside libraries.
"""

import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import PurePath

from kernbench.ptx.text.module import Loc, Module

# maximal depth of inlining
_DEEPEST = 64
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_LIBRARIES = frozenset({"cutlass", "cute", "cub", "thrust", "cuda", "nv", "crt", "cooperative_groups", "libcudacxx"})
# in comments of LLVM: a line, and what stands between it and the line that it is inlined at
_NAMED, _INLINED_AT = re.compile(r"(.+):(\d+):(\d+)"), " @[ "
_TOOLKIT = re.compile(r"cuda(-[\d.]+)?")


def is_library(file: str) -> bool:
    """Whether a path belongs to a library: installed packages, the CUDA toolkit, CUTLASS, CCCL, the system."""
    return bool(library_of(file))


def library_of(file: str) -> str:
    """The name of the library that a path belongs to; empty if to none."""
    parts = PurePath(file.replace("\\", "/")).parts
    for before, part in pairwise(parts):
        if before in _INSTALLED:
            return part
    for before, part in pairwise(parts[:-1]):
        if part in _LIBRARIES and before in ("include", "cccl", part):
            return part
        if part in ("include", "targets") and _TOOLKIT.fullmatch(before):
            return "the CUDA toolkit"
    return "the system's headers" if parts[:3] in (("/", "usr", "include"), ("/", "usr", "lib")) else ""


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of instructions: the innermost line, then the lines it was inlined at.

    And the index of the one to show.
    """

    frames: tuple[Loc, ...]
    shown: int


@dataclass(eq=False)
class Locations:
    """The `.loc` lines of one function in order; a caller's lines come before those of what it inlines."""

    module: Module
    _chains: dict[tuple[int, int, int], tuple[Loc, ...]] = field(default_factory=dict)
    _libraries: dict[int, bool] = field(default_factory=dict)

    def after(self, before: Origin | None, loc: Loc) -> Origin:
        """The origin after a `.loc` line; a line inside an inline assembly statement changes nothing."""
        if before is not None and self.module.in_assembly(loc.line):
            return before
        return self.at(loc)

    def at(self, loc: Loc) -> Origin:
        """The origin after a `.loc` line."""
        chain = (loc, *self._callers(loc))[:_DEEPEST]
        self._chains[loc.file, loc.source_line, loc.source_column] = chain
        return Origin(chain, self._own(chain))

    def _own(self, chain: tuple[Loc, ...]) -> int:
        """The frame to show: the innermost one in the kernel's file, or the innermost one outside libraries."""
        if self._library(chain[-1].file):
            for number, one in enumerate(chain):
                if not self._library(one.file):
                    return number
        return next(number for number, one in enumerate(chain) if one.file == chain[-1].file)

    def _library(self, file: int) -> bool:
        known = self._libraries.get(file)
        if known is None:
            known = self._libraries[file] = is_library(self.module.source_files.get(file, ""))
        return known

    def _callers(self, loc: Loc) -> tuple[Loc, ...]:
        caller = loc.inlined_at
        return self._commented(loc) if caller is None else self._chains.get(caller, (Loc(*caller),))

    def _commented(self, loc: Loc) -> tuple[Loc, ...]:
        """The callers in the comment of a `.loc` line, where Triton before 3.8 has them alone:
        `// standard.py:263:15 @[ softmax.py:11:20 ]`.
        """
        _, _, comment = self.module.line_text(loc.line).partition("// ")
        callers = []
        for text in comment.split(_INLINED_AT)[1:]:
            named = _NAMED.fullmatch(text.rstrip(" ]"))
            number = self._numbers.get(named[1]) if named else None
            if named is None or number is None:
                break
            callers.append(Loc(number, int(named[2]), int(named[3])))
        return tuple(callers)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Files by the last part of their path, unless several have it."""
        named: dict[str, dict[str, int]] = {}
        for number, file in self.module.source_files.items():
            named.setdefault(PurePath(file).name, {}).setdefault(file, number)
        return {name: next(iter(files.values())) for name, files in named.items() if len(files) == 1}
