"""The source line of each line of a PTX text, from its `.loc` directives."""

from functools import lru_cache

from kernbench.ptx.text.module import Instruction, Loc
from kernbench.ptx.text.parser import parse
from kernbench.ptx.text.walking import statements_of


@lru_cache(maxsize=8)
def source_lines(text: str) -> dict[int, tuple[str, int]]:
    """File and line of the source, by line of the PTX; empty for PTX without `.loc`."""
    if ".loc" not in text:
        return {}
    module = parse(text)
    found: dict[int, tuple[str, int]] = {}
    bodies = [kernel.function.body for kernel in module.kernels.values()]
    bodies += [function.body for function in module.functions.values()]
    for body in bodies:
        here = ("", 0)
        for statement in statements_of(body):
            if isinstance(statement, Loc) and not (here[1] and module.in_assembly(statement.line)):
                here = module.source_files.get(statement.file, ""), statement.source_line
            elif isinstance(statement, Instruction) and here[1] and here[0]:
                found[statement.line] = here
    return found
