"""Kernels whose call runs nothing: with `yield` or `async`, a call only creates an object."""

from collections.abc import AsyncGenerator, Coroutine, Generator

from kernbench.common.errors import KernelError
from kernbench.result.finding import SourceLocation


def check_ran(result: object, what: str = "kernel") -> None:
    """Raise an error if a kernel's return value shows that none of its lines ran, at the function's first line."""
    # nearly all return None, and the isinstance check takes a microsecond
    if result is None or not isinstance(result, (Generator, Coroutine, AsyncGenerator)):
        return
    code = getattr(result, "gi_code", None) or getattr(result, "cr_code", None) or getattr(result, "ag_code", None)
    word = "is async" if isinstance(result, Coroutine) else "has a yield in it"
    if not isinstance(result, AsyncGenerator):
        result.close()
    location = SourceLocation(code.co_filename, code.co_firstlineno, code.co_name) if code else None
    hint = f"write the {what} as a plain function: it gives way by itself where it waits"
    raise KernelError("misuse", f"the {what} {word}, so that calling it ran none of its lines", hint, location)
