"""Source lines of PTX that the emulator does not support."""

from collections.abc import Iterator

from kernbench.ptx.emulator.program.locations import Locations, Origin
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Block, Function, Kernel, Loc, Module


def located(problem: PtxError, kernel: Kernel, title: str) -> PtxError:
    """The error with the kernel and its source line, if it has line information, and with what to do about it."""
    origin = _origin(kernel.module, problem.line)
    where = ""
    if origin is not None:
        shown = origin.frames[origin.shown]
        where = f" ({kernel.module.source_files.get(shown.file, 'its source')}:{shown.source_line})"
    message = (
        f"{problem.message}\nThis is the PTX of '{title}'{where}. If a GPU runs it, the emulator lacks it: leave the "
        "kernel out with --skip, or write that line in another way"
    )
    return type(problem)(message, problem.line, problem.column, problem.text)


def _origin(module: Module, line: int) -> Origin | None:
    """The last `.loc` before a line of PTX, in the function that contains the line."""
    bodies = [item.body for item in module.items if isinstance(item, Function) and item.body is not None]
    before = [body for body in bodies if body.line <= line]
    found, locations = None, Locations(module)
    for loc in _locs(max(before, key=lambda body: body.line)) if before else ():
        if loc.line > line:
            break
        found = locations.after(found, loc)
    return found


def _locs(block: Block) -> Iterator[Loc]:
    for statement in block.statements:
        if isinstance(statement, Loc):
            yield statement
        elif isinstance(statement, Block):
            yield from _locs(statement)
