"""The golden's verdict on one run: how far each output is from the reference, and where it is worst."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RankError:
    """The error of one rank's part of an output."""

    rank: int
    max_abs: float
    relative_l2: float
    worst_index: tuple[int, ...]
    wrong: int
    elements: int

    @property
    def passed(self) -> bool:
        """Whether no element of this rank is out of tolerance."""
        return self.wrong == 0


@dataclass(frozen=True)
class Comparison:
    """How one output compares with its reference.

    `max_abs`, `max_rel` and `max_ulps` are the largest errors over all elements (ulps of the output's type);
    `worst_index` is the element furthest out of its tolerance, on rank `worst_rank` at `worst_row` of that rank's part.
    `tolerance` is the allowed error there. `reason` says in a sentence why it failed; empty if it passed.
    """

    name: str
    dtype: str
    passed: bool
    max_abs: float
    max_rel: float
    max_ulps: float
    relative_l2: float
    worst_index: tuple[int, ...]
    worst_rank: int | None
    worst_row: int | None
    actual: float
    expected: float
    tolerance: float
    wrong: int
    elements: int
    ranks: tuple[RankError, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        if self.passed:
            return f"{self.name}: right; max error {self.max_abs:.3g}, relative L2 {self.relative_l2:.3g}"
        return f"{self.name}: WRONG; {self.reason}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = {k: v for k, v in self.__dict__.items() if k != "ranks"}
        plain["worst_index"] = list(self.worst_index)
        plain["ranks"] = [{**r.__dict__, "worst_index": list(r.worst_index), "passed": r.passed} for r in self.ranks]
        return plain
