"""The source line of each line of a PTX text, from its `.loc` directives."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from kernbench.ptx.emulator.program.locations import Locations, Origin
from kernbench.ptx.text.module import Instruction, Loc, Module
from kernbench.ptx.text.parser import parse
from kernbench.ptx.text.walking import statements_of
from kernbench.result.reading import Data

# file and line
Frame = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Source:
    """The line of the user's source that a line of PTX is shown at, as for findings.

    `inner` are the lines of functions inlined there, the innermost first; `callers` are the lines that the shown one is
    inlined at itself.
    """

    file: str
    line: int
    inner: tuple[Frame, ...] = ()
    callers: tuple[Frame, ...] = ()

    @property
    def where(self) -> Frame:
        """File and line."""
        return self.file, self.line

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def data(self) -> Data:
        """As plain data; inlined functions only if there are any."""
        frames = {"inner": self.inner, "callers": self.callers}
        listed = {name: [frame_data(one) for one in held] for name, held in frames.items() if held}
        return {**frame_data(self.where), **listed}


def frame_data(frame: Frame) -> Data:
    """A file and line as plain data."""
    return {"file": frame[0], "line": frame[1]}


@lru_cache(maxsize=8)
def source_lines(text: str) -> Mapping[int, Source]:
    """The source by line of the PTX; empty for PTX without `.loc`."""
    if ".loc" not in text:
        return {}
    module = parse(text)
    found: dict[int, Source] = {}
    bodies = [kernel.function.body for kernel in module.kernels.values()]
    bodies += [function.body for function in module.functions.values()]
    for body in bodies:
        origin, here, locations = None, None, Locations(module)
        for statement in statements_of(body):
            if isinstance(statement, Loc):
                origin = locations.after(origin, statement)
                here = _source(module, origin)
            elif isinstance(statement, Instruction) and here is not None:
                found[statement.line] = here
    return found


def _source(module: Module, origin: Origin) -> Source | None:
    """The source at an origin; None if the compiler names no line of a known file (line 0 is none; then a caller's)."""
    frames = [(module.source_files.get(one.file, ""), one.source_line) for one in origin.frames]
    at = next((number for number in range(origin.shown, len(frames)) if all(frames[number])), None)
    if at is None:
        return None
    return Source(*frames[at], tuple(filter(all, frames[:at])), tuple(filter(all, frames[at + 1 :])))
