"""The source text around a run's source locations, kept with the run: files change, and pages are sent elsewhere."""

import linecache
from collections.abc import Iterable

from kernbench.result.finding import SourceLocation

# of longer files only the lines around the locations are kept
WHOLE_FILE = 1200
AROUND = 12
LONGEST_LINE = 300


def sources_of(locations: Iterable[SourceLocation | None]) -> dict[str, object]:
    """File -> its short name, and parts of its text as (number of the first line, lines)."""
    wanted: dict[str, set[int]] = {}
    names: dict[str, str] = {}
    for location in locations:
        if location is not None:
            lines = wanted.get(location.file)
            if lines is None:
                lines, names[location.file] = wanted.setdefault(location.file, set()), location.short_file
            lines.add(location.line)
    found = {file: _parts(linecache.getlines(file), lines) for file, lines in wanted.items()}
    return {file: {"name": names[file], "parts": parts} for file, parts in found.items() if parts}


def _parts(text: list[str], lines: set[int]) -> list[tuple[int, list[str]]]:
    if not text:
        return []
    if len(text) <= WHOLE_FILE:
        return [(1, _trimmed(text))]
    parts: list[tuple[int, int]] = []
    for line in sorted(lines):
        first, last = max(1, line - AROUND), min(len(text), line + AROUND)
        if parts and first <= parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], last)
        elif first <= last:
            parts.append((first, last))
    return [(first, _trimmed(text[first - 1 : last])) for first, last in parts]


def _trimmed(lines: list[str]) -> list[str]:
    return [line.rstrip()[:LONGEST_LINE] for line in lines]
