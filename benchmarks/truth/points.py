"""The points of the truth set, from `points.toml`."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "points.toml"
SETS, BOUNDS, SPLITS = (
    ("ours", "triton", "nvcc", "kernels"),
    ("memory", "compute", "latency"),
    (
        "tuning",
        "development",
        "compared",
        "compared-again",
        "compared-fourth",
        "compared-fifth",
        "compared-sixth",
        "compared-seventh",
        "held-out",
    ),
)


@dataclass(frozen=True)
class Point:
    """A kernel and a shape; the split was made before anything was fitted."""

    id: str
    set: str
    problem: str
    bound: str
    split: str
    parameters: dict[str, Any]


def points(file: Path = FILE) -> list[Point]:
    """All of them, in the order of the file."""
    return [Point(**row) for row in tomllib.loads(file.read_text(encoding="utf-8"))["point"]]
