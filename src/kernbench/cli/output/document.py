"""Results for other programs: one JSON document per command, to a file or, with `--json -`, to standard output."""

import ctypes
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from kernbench.common.errors import MisuseError

JSON = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the answer to this file as JSON; - is standard output."),
]
STDOUT = Path("-")
# descriptor of the real standard output, while it is reserved for documents
_KEPT: list[int] = []
_LOCATION = re.compile(r"(?P<file>[^\s:][^:\n]*):(?P<line>[1-9]\d{0,8}):(?:\d+:)? ")


def write_document(
    target: Path | None, command: str, data: Mapping[str, object] | Callable[[], Mapping[str, object]]
) -> None:
    """Write the result of a command if requested; data that take long to make are given as a function."""
    if target is None:
        return
    if callable(data):
        data = data()
    from kernbench.result.run import SCHEMA, json_text, write_json

    document = {"schema": SCHEMA, "command": command, **data}
    if target != STDOUT:
        write_json(target, document)
        return
    _write_out(json_text(document))


@contextmanager
def standard_output_for_documents() -> Iterator[None]:
    """Inside this context, standard output is reserved for documents: all other output goes to standard error, also
    from `os.write` or from `printf` of a library that a bench calls.
    """
    if not is_descriptor(sys.stdout, 1):
        with redirect_stdout(sys.stderr):
            yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    _KEPT.append(kept)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        # buffered output of C code
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)
        _KEPT.remove(kept)
        os.dup2(kept, 1)
        os.close(kept)


def _write_out(text: str) -> None:
    """Write to the real standard output, even while it is replaced."""
    stream = sys.__stdout__ if sys.stdout is sys.stderr else sys.stdout
    if stream is None:
        raise MisuseError("--json -: standard output is closed; name a file instead")
    if not _KEPT:
        stream.write(text)
        stream.flush()
        return
    left = memoryview(text.encode(stream.encoding, stream.errors or "strict"))
    while left:
        left = left[os.write(_KEPT[-1], left) :]


def is_descriptor(stream: object, number: int) -> bool:
    """Whether a stream is that of the process, and not replaced by a test or a notebook."""
    try:
        return bool(stream.fileno() == number)  # type: ignore[attr-defined]
    except (OSError, ValueError, AttributeError):
        return False


def wants_stdout(words: Sequence[str]) -> bool:
    """Whether a command line asks for its document on standard output."""
    return "--json=-" in words or any(pair == ("--json", "-") for pair in pairwise(words))


def error_data(error: Exception, text: str) -> dict[str, object]:
    """An error as data: its text, the location it is about, and the part of it that says what to do."""
    from kernbench.result.finding import SourceLocation, location_dict

    where = getattr(error, "where", None)
    found = _LOCATION.match(text)
    if not isinstance(where, SourceLocation) and found is not None:
        where = SourceLocation(str(Path(found["file"]).resolve()), int(found["line"]))
    location = location_dict(where) if isinstance(where, SourceLocation) else None
    return {"error": {"text": text, "place": location, "remedy": getattr(error, "hint", "") or None}}
