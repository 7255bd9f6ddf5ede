"""A timeline: spans on named lanes and flows between them, as columns; in picoseconds, or only an order."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import Array
from kernbench.result.finding import Place

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Lane:
    """One row of a timeline: an engine of a PE, or a link."""

    group: str
    name: str


@dataclass(frozen=True)
class Step:
    """One command of the critical path: what it waited for last, for how long it then ran, and where."""

    lane: Lane
    name: str
    where: Place | None
    waited_for: str
    lag: int
    start: int
    finish: int


@dataclass(frozen=True)
class Waits:
    """Why span i began (or, if it is a wait itself, ended) only then: kinds[kind[i]], and the span it waited for last.

    `after` is -1 where that is no span.
    """

    kinds: tuple[str, ...]
    kind: Ints
    after: Ints


@dataclass(frozen=True)
class Timeline:
    """Span i lies on lanes[lane[i]] from start[i] to finish[i] and is names[name[i]] at sites[site[i]].

    `flows` are pairs of spans, from a send to its receive. `unit` is "ps", or "order" where positions only say what
    came before what. `critical_path` is what decided the total, first to last. `waits` is None where nobody recorded
    what each span waited for.
    """

    unit: str
    lanes: list[Lane]
    names: list[str]
    sites: list[Place]
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
