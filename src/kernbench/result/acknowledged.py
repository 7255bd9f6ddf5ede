"""Acknowledged findings: known, with a reason. They no longer count, and reappear when their cause changes.

A finding is identified by its fingerprint: its kind and the code of all its lines, without line numbers. It is
acknowledged on its own line or the line above, with `# kernbench: allow race 1f0c22d4 the flag is checked again`, or in
a baseline file.
"""

import hashlib
import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from kernbench.common.errors import MisuseError
from kernbench.result.finding import Finding, SourceLocation
from kernbench.result.reading import Data
from kernbench.result.run import Run, write_bytes

_MARK = re.compile(r"kernbench:\s*allow\s+(?P<kind>[\w-]+)(?:\s+(?P<print>[0-9a-f]{8}))?(?:\s+(?P<reason>\S.*))?")
_COMMENT = re.compile(r"\s*(?:#|//)\s*kernbench:.*$")
_KEYS = {"kind", "fingerprint", "where", "text", "reason"}


@dataclass(frozen=True)
class Entry:
    """One acknowledged finding of a baseline."""

    kind: str
    fingerprint: str
    reason: str
    where: str = ""
    text: str = ""


def fingerprint(finding: Finding) -> str:
    """Eight hex digits that identify a finding; generated text (<...>) counts only if there is no source."""
    locations = [
        location for location in (finding.where, *(other.where for other in finding.others)) if location is not None
    ]
    locations = [location for location in locations if not location.file.startswith("<")] or locations
    lines = sorted({f"{location.function}: {_COMMENT.sub('', location.text).strip()}" for location in locations})
    return hashlib.sha256("\n".join([finding.kind, *lines]).encode()).hexdigest()[:8]


def mark_for(finding: Finding) -> str:
    """The comment that acknowledges a finding, up to its reason."""
    return f"kernbench: allow {finding.kind} {fingerprint(finding)}"


def acknowledge(run: Run, baseline: list[Entry] | None = None) -> None:
    """Remove the acknowledged findings from a run; `views["acknowledged"]` keeps them.

    A finding whose mark was made for another cause stays, with a note. A run that did not finish stays unsafe whatever
    is acknowledged.
    """
    entries = {(entry.kind, entry.fingerprint): entry for entry in baseline or []}
    taken = list(run.views.get("acknowledged", []))
    run.findings = _left(run.findings, entries, taken)
    run.formal = _left(run.formal, entries, taken)
    if taken:
        run.views["acknowledged"] = taken


def _left(
    findings: list[Finding], entries: dict[tuple[str, str], Entry], taken: list[dict[str, object]]
) -> list[Finding]:
    """The findings that are not acknowledged; the others are added to `taken`."""
    left = []
    for finding in findings:
        mine = fingerprint(finding)
        known = entries.get((finding.kind, mine))
        by, reason, note = ("baseline", known.reason, "") if known else _in_source(finding)
        if by:
            taken.append({"by": by, "reason": reason, "fingerprint": mine, "finding": finding.to_dict()})
        else:
            left.append(replace(finding, message=f"{finding.message}\n{note}") if note else finding)
    return left


def _in_source(finding: Finding) -> tuple[str, str, str]:
    """What acknowledges a finding in its source, the reason, and a note if a mark does not fit."""
    for mark in _marks(finding.where):
        if mark["kind"] != finding.kind:
            continue
        if mark["print"] == fingerprint(finding) and mark["reason"]:
            return "source", mark["reason"].strip(), ""
        if mark["print"] is None:
            return "", "", f"to acknowledge it the comment must read: {mark_for(finding)} REASON"
        if not mark["reason"]:
            return "", "", "it is acknowledged without a reason: add one to the comment"
        now = fingerprint(finding)
        return "", "", f"it was acknowledged ({mark['reason'].strip()}), but its cause has changed: it is {now} now"
    return "", "", ""


def _marks(where: SourceLocation | None) -> list[Data]:
    """Marks on a source line, and in the comment line right above it."""
    if where is None:
        return []
    lines = dict(where.context(1))
    found = [_MARK.search(lines.get(where.line, ""))]
    above = lines.get(where.line - 1, "").strip()
    if above.startswith(("#", "//")):
        found.append(_MARK.search(above))
    return [match.groupdict() for match in found if match is not None]


def read_baseline(path: Path) -> list[Entry]:
    """The entries of a baseline file."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise MisuseError(f"{path}: {error}") from None
    rows = document.get("finding", [])
    if set(document) - {"finding"} or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise MisuseError(f"{path}: a baseline holds [[finding]] tables and nothing else")
    return [_entry(path, row) for row in rows]


def _entry(path: Path, row: Data) -> Entry:
    strange = set(row) - _KEYS
    if strange or not all(isinstance(value, str) for value in row.values()):
        raise MisuseError(f"{path}: a [[finding]] has the texts {', '.join(sorted(_KEYS))}; got {row!r}")
    missing = [key for key in ("kind", "fingerprint", "reason") if not row.get(key, "").strip()]
    if missing:
        raise MisuseError(f"{path}: a [[finding]] lacks {', '.join(missing)}: {row!r}")
    return Entry(**row)


def write_baseline(path: Path, findings: list[Finding], reason: str, kept: list[Entry] | None = None) -> int:
    """Write a baseline that acknowledges findings in addition to the entries `kept`; returns how many it has."""
    entries = {(entry.kind, entry.fingerprint): entry for entry in kept or []}
    for finding in findings:
        where, text = (str(finding.where), finding.where.text) if finding.where is not None else ("", "")
        made = Entry(finding.kind, fingerprint(finding), reason, where, text)
        entries.setdefault((made.kind, made.fingerprint), made)
    lines = ["# findings that are known, each with its reason; one whose code changes has another fingerprint"]
    for entry in entries.values():
        lines.append("\n[[finding]]")
        keys = ("kind", "fingerprint", "where", "text", "reason")
        lines.extend(f"{key} = {_quoted(getattr(entry, key))}" for key in keys if getattr(entry, key))
    write_bytes(path, ("\n".join(lines) + "\n").encode())
    return len(entries)


def _quoted(text: str) -> str:
    """A TOML basic string."""
    escaped = "".join(c if c >= " " and c not in '\\"\x7f' else f"\\u{ord(c):04x}" for c in text)
    return f'"{escaped}"'


def unmet(runs: list[Run], baseline: list[Entry]) -> list[Entry]:
    """Entries of a baseline that matched no finding of any run: they may be removed."""
    met = {row["fingerprint"] for run in runs for row in run.views.get("acknowledged", []) if row["by"] == "baseline"}
    return [entry for entry in baseline if entry.fingerprint not in met]
