"""A timeline: spans on named lanes and flows between them, as columns; in picoseconds, or as an order only."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import Array
from kernbench.result.finding import SourceLocation

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Lane:
    """One row of a timeline: an engine of a PE, or a link."""

    group: str
    name: str


@dataclass(frozen=True)
class Step:
    """One command of the critical path: what it waited for last, when it then ran, and its source location."""

    lane: Lane
    name: str
    where: SourceLocation | None
    waited_for: str
    lag: int
    start: int
    finish: int


@dataclass(frozen=True)
class Waits:
    """Why span i did not begin earlier (or end, if it is a wait itself).

    Kinds[kind[i]], and the span it waited for last.

    `after` is -1 if it waited for no span.
    """

    kinds: tuple[str, ...]
    kind: Ints
    after: Ints


@dataclass(frozen=True)
class Timeline:
    """Span i is on lanes[lane[i]] from start[i] to finish[i], with name names[name[i]] and location sites[site[i]].

    `flows` are pairs of spans, from a send to its receive. `unit` is "ps", or "order" if positions only give an order.
    `critical_path` determined the total time, first step to last. `waits` is None if the waits of spans were not
    recorded.
    """

    unit: str
    lanes: list[Lane]
    names: list[str]
    sites: list[SourceLocation]
    lane: Ints
    name: Ints
    site: Ints
    start: Ints
    finish: Ints
    flows: NDArray[np.int64]
    critical_path: list[Step] = field(default_factory=list)
    counters: dict[str, tuple[Ints, Array]] = field(default_factory=dict)
    waits: Waits | None = None

    @property
    def total(self) -> int:
        """When the last span ends."""
        return int(self.finish.max(initial=0))
