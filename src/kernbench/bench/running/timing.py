"""The time of a run, computed while another process compares its outputs, if there is one."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, fields

from kernbench.result.finding import Finding
from kernbench.result.launches import joined
from kernbench.result.run import Run
from kernbench.targets import registry


@dataclass
class _Early:
    """A run with its time, the fields that timing left unchanged, and the state of the run at that time."""

    timed: Run
    kept: list[str]
    findings: list[Finding]
    metrics: Mapping[str, object]
    views: Mapping[str, object]

    def holds(self, run: Run) -> bool:
        """Whether timing again would give the same."""
        same = _are_same(run.metrics, self.metrics) and _are_same(run.views, self.views)
        return run.ok and run.findings == self.findings and same


class Timing:
    """Times runs, if time `is_asked` for; `retime` times one launch."""

    def __init__(self, retime: Callable[[Run], Run], is_asked: bool):
        self._retime = retime
        self._is_asked = is_asked
        self._early: _Early | None = None

    def begin(self, run: Run) -> None:
        """Time a run before its verdict is known; errors are ignored, as they will occur again."""
        if not self._is_asked or run.safe is not True or run.comparison is not None or run.launches:
            return
        before = {field.name: getattr(run, field.name) for field in fields(run)}
        known = list(run.findings), dict(run.metrics), dict(run.views)
        with suppress(Exception):
            timed = self._retime(run)
            kept = [name for name, was in before.items() if getattr(timed, name) is was]
            self._early = _Early(timed, kept, *known)

    def of(self, run: Run) -> Run:
        """The run with its time: with several launches, the times of all, one after the other."""
        if self._early is not None and self._early.holds(run):
            timed = copy(self._early.timed)
            for name in self._early.kept:
                setattr(timed, name, getattr(run, name))
            return timed
        if not run.launches or not run.ok or run.safe is False:
            return self._retime(run)
        return joined(run, [self._retime(launch) for launch in run.launches], registry.of_run(run).joined_views)


def _are_same(found: Mapping[str, object], known: Mapping[str, object]) -> bool:
    """Whether both hold identical objects."""
    return found.keys() == known.keys() and all(found[name] is value for name, value in known.items())
