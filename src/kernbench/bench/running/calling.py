"""Calls the functions of a bench; their exceptions and invalid results are reported as errors of the bench."""

import inspect
from collections.abc import Callable, Mapping
from math import isfinite
from numbers import Real
from pathlib import Path
from typing import TypeVar

from kernbench import golden
from kernbench.bench.definition.bench import Bench
from kernbench.bench.discovery.libraries import blamed
from kernbench.bench.discovery.modules import folders_of, importable, passes_through
from kernbench.common.errors import SHOWN_OF_KERNELS, BenchError, KernbenchError, said, traced
from kernbench.safety.confined import is_beyond_memory, memory_in_words

_PACKAGE = Path(golden.__file__).parent.parent
# the result of a function of a bench
Given = TypeVar("Given")


def inputs_of(bench: Bench, p: object, rng: object) -> Mapping[str, object]:
    """Its inputs, by name."""
    inputs: object = call(bench, "inputs", bench.inputs, p, rng)
    if not isinstance(inputs, Mapping):
        raise BenchError(f"bench {bench.name}: inputs must return name -> array; got {type(inputs).__name__}")
    return inputs


def limits_of(bench: Bench, p: object, machine: object) -> dict[str, int]:
    """Picoseconds that no schedule can beat, by name; empty if the bench has no limits."""
    if bench.limits is None:
        return {}
    limits: object = call(bench, "limits", bench.limits, p, machine)
    if not isinstance(limits, Mapping) or not all(_is_time(limit) for limit in limits.values()):
        raise BenchError(f"bench {bench.name}: limits must return name -> picoseconds, 0 or more; got {limits!r}")
    return dict(limits)


def _is_time(limit: object) -> bool:
    return isinstance(limit, Real) and isfinite(limit) and float(limit) >= 0


def _folders(bench: Bench) -> tuple[Path, ...]:
    """The import folders of the bench's functions; bundled benches need none."""
    if not bench.file or Path(bench.file).is_relative_to(_PACKAGE):
        return ()
    return folders_of(Path(bench.file))


def call(bench: Bench, name: str, function: Callable[..., Given], *args: object, **kwargs: object) -> Given:
    """Call a function of the bench; an exception is reported as an error of the bench, at its line."""
    try:
        with importable(*_folders(bench)):
            return function(*args, **kwargs)
    except KernbenchError:
        raise
    except BaseException as error:
        if passes_through(error):
            raise
        where = _raised_at(bench, getattr(bench, name, None), error)
        ours = blamed(error, [Path(bench.file)]) if isinstance(error, Exception) and bench.file else None
        raise ours or BenchError(f"{where}: {_why(f'{name} of bench {bench.name}', error)}") from error


def _why(what: str, error: BaseException) -> str:
    """An error in words; a limit that was reached says neither that a kernel is right nor that it is wrong."""
    if is_beyond_memory(error):
        more = f" ({said(error, SHOWN_OF_KERNELS)})" if str(error) else ""
        return f"out of memory: {what} takes {memory_in_words()}{more}"
    return f"{what} raised {said(error)}"


def _raised_at(bench: Bench, function: object, error: BaseException) -> str:
    """The innermost line of the bench's file in an error's traceback, else of any file; if the function did not
    accept its arguments, its first line.
    """
    frames = [(frame.f_code.co_filename, line) for frame, line in traced(error)]
    others = [(file, line) for file, line in frames if not Path(file).is_relative_to(_PACKAGE)]
    own = [(file, line) for file, line in frames if file == bench.file] or others
    if own:
        file, line = own[-1]
        return f"{file}:{line}"
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    return f"{code.co_filename}:{code.co_firstlineno}" if code else bench.file
