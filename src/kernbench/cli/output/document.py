"""Answers for other programs: one JSON document a command, to a file or, with `--json -`, to standard output."""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
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
_PLACE = re.compile(r"(?P<file>[^\s:][^:\n]*):(?P<line>[1-9]\d{0,8}):(?:\d+:)? ")


def write_document(
    target: Path | None, command: str, data: Mapping[str, object] | Callable[[], Mapping[str, object]]
) -> None:
    """Write what a command answers, if somebody asked for it; data that take long to make are given as a function."""
    if target is None:
        return
    if callable(data):
        data = data()
    from kernbench.result.run import SCHEMA, json_text, write_json

    document = {"schema": SCHEMA, "command": command, **data}
    if target != STDOUT:
        write_json(target, document)
        return
    # where everything printed goes to standard error, the document alone has standard output
    stream = sys.__stdout__ if sys.stdout is sys.stderr else sys.stdout
    if stream is None:
        raise MisuseError("--json -: standard output is closed; name a file instead")
    stream.write(json_text(document))
    stream.flush()


def wants_stdout(words: Sequence[str]) -> bool:
    """Whether a command line asks for its document on standard output."""
    return "--json=-" in words or any(pair == ("--json", "-") for pair in pairwise(words))


def error_data(error: Exception, text: str) -> dict[str, object]:
    """A refusal as data: what it says, the place it is about, and the part of it that says what to do."""
    from kernbench.result.finding import Place, place_dict

    where = getattr(error, "where", None)
    found = _PLACE.match(text)
    if not isinstance(where, Place) and found is not None:
        where = Place(str(Path(found["file"]).resolve()), int(found["line"]))
    place = place_dict(where) if isinstance(where, Place) else None
    return {"error": {"text": text, "place": place, "remedy": getattr(error, "hint", "") or None}}
