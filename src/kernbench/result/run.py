"""Run: what every launch gives back. It answers right, safe and fast with yes, no or not asked."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

import kernbench
from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.common.files import why
from kernbench.result.columns import pack
from kernbench.result.comparison import Comparison
from kernbench.result.finding import FAULT, FORMAL, Finding, SourceLocation
from kernbench.result.reading import Data
from kernbench.result.sources import sources_of
from kernbench.result.spans import timeline_dict
from kernbench.result.timeline import Timeline

# version of to_dict's format; 2 added views, timeline, sources and error maps
SCHEMA = 2
# views of a loaded run: what to_dict wrote of outputs and sources
KEPT = ("outputs", "sources")


class Status(StrEnum):
    """How a launch ended."""

    FINISHED = "finished"
    DEADLOCKED = "deadlocked"
    OVER_BUDGET = "over budget"
    FAILED = "failed"
    STOPPED = "stopped to look inside"


@dataclass(repr=False)
class Run:
    """What a launch computed, found and recorded.

    `checked` names the checks that ran; no findings means safe with respect to those. `comparison` is None until asked
    for. `findings` are faults. `formal` are findings that break the rules but change no result on existing hardware;
    they do not make a run unsafe. If both kinds are passed as `findings`, they are separated.

    `recording` is what the functional pass recorded for timing, in the target's own form. `views` contains further data
    for reports. `launches` are the single launches if there are several.
    """

    outputs: dict[str, Array]
    findings: list[Finding]
    checked: tuple[str, ...]
    status: Status
    recording: Any = None
    comparison: list[Comparison] | None = None
    timeline: Timeline | None = None
    metrics: Data = field(default_factory=dict)
    views: Data = field(default_factory=dict)
    origin: Data = field(default_factory=dict)
    launches: list["Run"] = field(default_factory=list)
    formal: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        formal = [finding for finding in self.findings if finding.severity == FORMAL]
        if formal:
            self.findings = [finding for finding in self.findings if finding.severity == FAULT]
            self.formal = [*self.formal, *formal]

    def strict(self) -> "Run":
        """The same run, with formal findings counted as faults: their severity becomes FAULT."""
        for run in (self, *self.launches):
            run.findings = [*run.findings, *(replace(finding, severity=FAULT) for finding in run.formal)]
            run.formal = []
        return self

    @property
    def right(self) -> bool | None:
        """Whether the outputs match the golden, or what the program itself compared with; None if not asked."""
        if self.comparison is not None:
            return all(c.passed for c in self.comparison)
        compared = self.views.get("compared")
        return not compared.get("wrong") if isinstance(compared, Mapping) else None

    @property
    def safe(self) -> bool | None:
        """Whether no check found a fault and every program returned; None if nothing was checked to the end."""
        if not self.checked or (self.status is Status.STOPPED and not self.findings):
            return None
        return not self.findings and self.status is Status.FINISHED

    @property
    def own_findings(self) -> list[Finding]:
        """Its faults but for those of its compiler, about which the program can do nothing."""
        return [finding for finding in self.findings if not finding.is_compilers]

    @property
    def ok(self) -> bool:
        """Safe, and not known to be wrong."""
        return self.safe is not False and self.right is not False

    def __repr__(self) -> str:
        kinds = ", ".join(sorted({f.kind for f in self.findings})) or "none"
        commands = self.metrics.get("commands", 0)
        outputs = ", ".join(self.outputs) or "none"
        return (
            f"<Run {self.status}: right {self.right}, safe {self.safe}; findings: {kinds}; outputs: {outputs}; "
            f"{commands:,} commands>"
        )

    def _repr_html_(self) -> str:
        """The page a notebook shows."""
        return kernbench.notebook_html(self)

    def to_dict(self) -> Data:
        """Plain data for JSON: everything except the arrays and the recording, with the source text it refers to."""
        views = {name: view for name, view in self.views.items() if name not in KEPT}
        plain: dict[str, object] = _plain(
            {
                "schema": SCHEMA,
                "right": self.right,
                "safe": self.safe,
                "status": str(self.status),
                "checked": list(self.checked),
                "findings": [f.to_dict() for f in self.findings],
                "formal": [f.to_dict() for f in self.formal],
                "comparison": None if self.comparison is None else [c.to_dict() for c in self.comparison],
                "metrics": self.metrics,
                "outputs": self._described_outputs(),
                "origin": self.origin,
                "views": views,
                "timeline": None if self.timeline is None else timeline_dict(self.timeline),
                "sources": self.sources(),
                "launches": [launch._launch_dict() for launch in self.launches],
            }
        )
        return plain

    def _launch_dict(self) -> dict[str, object]:
        """One of several launches: what it was, found and counted.

        Only the whole run has a timeline, views and sources.
        """
        return {
            "status": str(self.status),
            "checked": list(self.checked),
            "findings": [f.to_dict() for f in self.findings],
            "formal": [f.to_dict() for f in self.formal],
            "metrics": self.metrics,
            "outputs": self._described_outputs(),
            "origin": self.origin,
        }

    def _described_outputs(self) -> Data:
        outputs = {n: {"shape": list(a.shape), "dtype": a.dtype.name} for n, a in self.outputs.items()}
        return outputs or dict(self.views.get("outputs", {}))

    def sources(self) -> dict[str, object]:
        """The source text around every location the run refers to, as it was when the run was saved, or as it is."""
        if "sources" in self.views:
            kept: dict[str, object] = self.views["sources"]
            return kept
        found = [*self.findings, *self.formal]
        locations: list[SourceLocation | None] = [f.where for f in found] + [o.where for f in found for o in f.others]
        if self.timeline is not None:
            locations += [*self.timeline.sites, *(step.where for step in self.timeline.critical_path)]
        lines = [row["source"] for row in self.views.get("by_source", ())]
        locations += [SourceLocation(line["file"], line["line"]) for line in lines]
        return sources_of(locations)

    def save(self, path: str | Path) -> None:
        """Write `to_dict()` as JSON, atomically."""
        write_json(path, self.to_dict())


def write_json(path: str | Path, data: object) -> None:
    """Write `data` as JSON, atomically."""
    write_bytes(path, json_text(data).encode())


def json_text(data: object) -> str:
    """`data` as JSON: arrays as columns, non-finite numbers as strings."""
    return json.dumps(_plain(data), indent=2, allow_nan=False) + "\n"


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file beside `path`, then rename it, so that no partial file is ever seen."""
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        raise MisuseError(f"{path} is no ordinary file: choose another name")
    partial = target.with_name(target.name + ".partial")
    try:
        partial.write_bytes(content)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise MisuseError(f"{path} cannot be written: {why(error)}") from None


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray) and value.ndim:
        return pack(value) if value.dtype.kind in "iubf" else [_plain(v) for v in value.tolist()]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
