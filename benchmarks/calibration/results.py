"""Results of the microbenchmarks as they were written, and what each row says: cycles or bytes, readings cancelled."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from kernbench.common.errors import KernbenchError

Row = dict[str, Any]


class ResultsError(KernbenchError):
    """A file of results that cannot be used."""


@dataclass(frozen=True)
class Results:
    """Rows by benchmark, and what they were measured on. Rows that hold an error are kept apart."""

    machine: dict[str, Any]
    rows: list[Row]
    failed: list[Row] = field(default_factory=list)

    def of(self, benchmark: str, **parameters: object) -> list[Row]:
        """Rows of a benchmark whose parameters have these values."""
        return [
            row
            for row in self.rows
            if row["benchmark"] == benchmark
            and all(row["parameters"].get(name) == value for name, value in parameters.items())
        ]

    def one(self, benchmark: str, **parameters: object) -> Row:
        """The only such row; `LookupError` where there is none."""
        found = self.of(benchmark, **parameters)
        if len(found) != 1:
            raise LookupError(f"{len(found)} rows of {benchmark} with {parameters or 'no parameters'}")
        return found[0]

    def varied(self, benchmark: str, parameter: str, **parameters: object) -> Iterator[tuple[Any, Row]]:
        """Rows with the value of one parameter, in its order."""
        rows = self.of(benchmark, **parameters)
        yield from sorted(((row["parameters"][parameter], row) for row in rows), key=lambda pair: pair[0])


def read(path: Path) -> Results:
    """A file of results; refuses one that no GPU was measured for."""
    rows: list[Row] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines if line.strip()]
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror}); measure first: make calibrate") from error
    except ValueError as error:
        raise ResultsError(f"{path}: not lines of JSON ({error}); measure again") from error
    if not rows or "machine" not in rows[0]:
        raise ResultsError(f"{path}: its first line does not say which GPU was measured; measure again")
    machine = rows[0]["machine"]
    if machine.get("emulated", True):
        raise ResultsError(f"{path}: an emulated GPU ran these; figures come from a real one only")
    good = [row for row in rows[1:] if "error" not in row and "machine" not in row]
    return Results(machine, good, [row for row in rows[1:] if "error" in row])


def per_turn(row: Row) -> float:
    """Cycles of one turn: the difference between the two counts of turns."""
    first, last = row["samples"][0], row["samples"][-1]
    return float((last["cycles"] - first["cycles"]) / (last["turns"] - first["turns"]))


def per_work(row: Row) -> float:
    """Cycles of one unit of work."""
    return per_turn(row) / float(row["work"])


def per_turn_of(row: Row, warps: slice) -> float:
    """As `per_turn`, of some warps only: the median of theirs."""
    first, last = row["samples"][0], row["samples"][-1]
    steps = last["turns"] - first["turns"]
    pairs = zip(first["by_warp"][warps], last["by_warp"][warps], strict=True)
    return float(median((after - before) / steps for before, after in pairs))


def ns_per_turn(row: Row) -> float:
    """Nanoseconds of one turn by events."""
    first, last = row["samples"][0], row["samples"][-1]
    return float((last["event_ns"] - first["event_ns"]) / (last["turns"] - first["turns"]))


def bytes_per_ns(row: Row) -> float:
    """Bytes of the whole GPU each nanosecond, which is GB/s."""
    return float(row["work"]) * float(row["ctas"]) / ns_per_turn(row)


def clock(row: Row) -> float:
    """The clock of a row in MHz: its own where it ran long enough, or that of a warp right after."""
    own = [sample["clock_mhz"] for sample in row["samples"] if sample["clock_mhz"]]
    found = own[-1] if own else row["clock_after_mhz"]
    if not found:
        raise LookupError(f"no clock beside {row['benchmark']}")
    return float(found)


def spread(row: Row) -> float:
    """How far launches of a row lay apart, of their median."""
    name = "event_spread" if row["by_time"] else "cycles_spread"
    return float(max(sample[name] for sample in row["samples"]))


def line(points: list[tuple[float, float]]) -> tuple[float, float, Callable[[float], float]]:
    """Slope and intercept of the straight line nearest to points, and the line."""
    if len({x for x, _ in points}) < 2:
        raise LookupError("a line needs two points")
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    over = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / over
    intercept = mean_y - slope * mean_x
    return slope, intercept, lambda x: intercept + slope * x
