"""What a fit finds: a figure with its range, and the figures that are known by then."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from kernbench.ptx.machine import MEASURED, Figure

from .results import Row, spread

Known = Mapping[str, float]


@dataclass(frozen=True)
class Fitted:
    """A figure that was found: its value and range, the benchmark, and how far its rows lie from the fit at most."""

    name: str
    value: float
    low: float
    high: float
    benchmark: str
    residual: float
    points: int

    def figure(self) -> Figure:
        """As a machine file has it."""
        low, high = min(self.low, self.value), max(self.high, self.value)
        places = 4 if self.value < 10 else 1
        value = round(self.value, places)
        return Figure(value, min(round(low, places), value), max(round(high, places), value), MEASURED, self.benchmark)


def found_from(name: str, values: list[float], rows: list[Row], benchmark: str, residual: float = 0.0) -> Fitted:
    """The median of estimates, between the least and the most of them or as far as launches lay apart."""
    if not values:
        raise LookupError(f"nothing was measured for {name}")
    value = median(values)
    apart = max((spread(row) for row in rows), default=0.0) * abs(value) / 2
    low, high = min(*values, value - apart), max(*values, value + apart)
    return Fitted(name, value, max(low, 0.0), high, benchmark, residual, len(rows))
