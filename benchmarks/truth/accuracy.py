"""The page that says how far predictions lie from what was measured: `python -m benchmarks.truth.accuracy PAGE.md`.

It is made from files of `data/`: what `python -m benchmarks.truth` measured on a GPU, what `python -m
benchmarks.truth.predict` predicted without one, what came out when held-out points were compared, and remarks.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

from .points import Point, points
from .predict import MODEL

DATA = Path(__file__).parent / "data"
# of the measured time: two kernels that lie nearer than this are equally good
EQUAL = 0.03
# errors that are named
LARGEST = 12
GATES = {"mape": 0.10, "p90": 0.15, "worst": 0.25, "signed": 0.03, "spearman": 0.95, "pairs": 0.90}
HEAD = """# How near predicted times are to an H200's

Predictions are made without a GPU, from a recording on the emulator and machine code of `ptxas`; what they are held to
was measured on an H200 with L2 flushed before each launch, as [Figures of GPUs](gpu-calibration.md) says. Times are
those between two events around the launches, in microseconds. Figures of the model come from microbenchmarks only. The
points marked *tuning* were looked at while the model was made. Those of *development*, *compared*, *compared-again*,
*compared-fourth*, *compared-fifth*, *compared-sixth* and *compared-seventh* were each held out once: chosen before
anything was compared with them, and compared once. What came out then is the table of looks below; since then they are
data by which mechanisms of the model are mended, and what they say of the model as it is says nothing of kernels that
it does not know. *Held-out* points are kernels that were not in the set before, written down before anything was
compared with them. A row that is *sampled* stands for a grid of which the first CTAs were run on the emulator and
taken for the others, or, where CTAs all over the grid have other amounts of work (*spread*), short runs of CTAs from
all over it, each taken for the part around it. `python -m benchmarks.truth.accuracy docs/gpu-accuracy.md` writes this
page from the files beside it.
"""


TITLES = {
    "held-out": "Held out",
    "compared-seventh": "Held out a seventh time, and since then used to mend the model",
    "compared-sixth": "Held out a sixth time, and since then used to mend the model",
    "compared-fifth": "Held out a fifth time, and since then used to mend the model",
    "compared-fourth": "Held out a fourth time, and since then used to mend the model",
    "compared-again": "Held out a third time, and since then used to mend the model",
    "compared": "Held out a second time, and since then used to mend the model",
    "development": "Held out at first, and since then used to mend the model",
    "tuning": "Looked at while the model was made",
}


@dataclass(frozen=True)
class Pair:
    """A point with both of its times, in nanoseconds."""

    point: Point
    measured: float
    predicted: float
    row: dict[str, Any]

    @property
    def error(self) -> float:
        """Signed, of what was measured."""
        return self.predicted / self.measured - 1


def rows(path: Path) -> dict[str, dict[str, Any]]:
    """Rows by point; the last of a point counts."""
    if not path.exists():
        return {}
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {row["id"]: row for row in found if "id" in row}


def compared(measured: dict[str, Any], predicted: dict[str, Any]) -> list[Pair]:
    """Points that have both times."""
    made = []
    for point in points():
        truth, model = measured.get(point.id, {}), predicted.get(point.id, {})
        if "time_ns" in truth and "time_ns" in model:
            made.append(Pair(point, float(truth["time_ns"]), float(model["time_ns"]), model))
    return made


def ranks(values: list[float]) -> list[float]:
    """Ranks from 1; equal values share theirs."""
    order = sorted(values)
    return [(order.index(value) + 1 + len(order) - order[::-1].index(value)) / 2 for value in values]


def spearman(first: list[float], second: list[float]) -> float:
    """Correlation of ranks; 1 where there is nothing to rank."""
    one, two = ranks(first), ranks(second)
    middle = (len(one) + 1) / 2
    spread = [sum((rank - middle) ** 2 for rank in side) for side in (one, two)]
    if not all(spread):
        return 1.0
    shared = sum((a - middle) * (b - middle) for a, b in zip(one, two, strict=True))
    return float(shared / (spread[0] * spread[1]) ** 0.5)


def winners(pairs: list[Pair]) -> tuple[int, int]:
    """Pairs of points of one problem: how many have the right winner, or one within 3 %, and how many there are."""
    right = total = 0
    for first, second in combinations(pairs, 2):
        if first.point.problem != second.point.problem:
            continue
        total += 1
        chosen = min((first, second), key=lambda one: one.predicted)
        best = min(first.measured, second.measured)
        right += chosen.measured <= best * (1 + EQUAL)
    return right, total


def summary(pairs: list[Pair]) -> dict[str, float]:
    """The figures that gates are about."""
    errors = sorted(abs(pair.error) for pair in pairs)
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.point.problem, []).append(pair)
    ranked = [
        spearman([pair.measured for pair in group], [pair.predicted for pair in group])
        for group in groups.values()
        if len(group) > 2
    ]
    right, total = winners(pairs)
    return {
        "mape": mean(errors),
        "p90": errors[min(int(0.9 * len(errors)), len(errors) - 1)],
        "worst": errors[-1],
        "signed": mean(pair.error for pair in pairs),
        "spearman": min(ranked, default=1.0),
        "pairs": right / total if total else 1.0,
    }


def _sampled(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Which CTAs of each launch were run, where not all were; older rows only say that it was so."""
    found = row.get("sampled")
    return found if isinstance(found, list) else []


# what is said of a row, and of which
MARKS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "sampled": lambda row: bool(row.get("sampled")),
    "spread": lambda row: any(one["way"] == "spread" for one in _sampled(row)),
    "before": lambda row: row.get("model", 0) < MODEL,
}
WORDS = {
    "mape": "mean of absolute errors",
    "p90": "nine tenths of the errors are below",
    "worst": "the largest error",
    "signed": "mean of signed errors",
    "spearman": "least correlation of ranks within a problem",
    "pairs": "pairs of one problem with the right winner, or one within 3 %",
}


def met(name: str, value: float) -> bool:
    """Whether a gate is met."""
    return value >= GATES[name] if name in ("spearman", "pairs") else abs(value) <= GATES[name]


def gates(pairs: list[Pair]) -> Iterator[str]:
    """A table of gates."""
    yield f"| of {len(pairs)} points | gate | reached | |"
    yield "|---|---|---|---|"
    for name, value in summary(pairs).items():
        shown = f"{value:.2f}" if name == "spearman" else f"{value:+.1%}" if name == "signed" else f"{value:.1%}"
        gate = f"at least {GATES[name]:g}" if name in ("spearman", "pairs") else f"at most {GATES[name]:.0%}"
        yield f"| {WORDS[name]} | {gate} | {shown} | {'met' if met(name, value) else '**missed**'} |"
    before = sum(MARKS["before"](pair.row) for pair in pairs)
    if before:
        yield ""
        yield f"{before} of them were timed before the model was mended last (*before* in the list of points)."


def table(pairs: list[Pair]) -> Iterator[str]:
    """A row for each point."""
    yield "| point | split | measured | predicted | error | bound in the model | machine code | |"
    yield "|---|---|---|---|---|---|---|---|"
    for pair in pairs:
        joined = f"{pair.row.get('joined', 0):.0%}"
        sampled = ", ".join(word for word, said in MARKS.items() if said(pair.row))
        yield (
            f"| {pair.point.id} | {pair.point.split} | {pair.measured / 1e3:.1f} | {pair.predicted / 1e3:.1f} "
            f"| {pair.error:+.1%} | {pair.row.get('bound', '')} | {joined} | {sampled} |"
        )


def looks(given: list[dict[str, Any]]) -> Iterator[str]:
    """A row for each time that points which were held out were compared, with what came out then."""
    yield "| look | points | " + " | ".join(WORDS.values()) + " |"
    yield "|---|---|" + "---|" * len(WORDS)
    for one in given:
        shown = [f"{one[name]:.2f}" if name == "spearman" else f"{one[name]:.1%}" for name in WORDS]
        yield f"| {one['look']} | {one['points']} | " + " | ".join(shown) + " |"


EXPANSION = """## Without an assembler

Where `ptxas` or `nvdisasm` is missing, an expansion of PTX stands in for machine code (a result says "from expansion of
PTX"). Of the same points, by the expansion, all of them used to mend it and none held out:
"""


def without_assembler(pairs: list[Pair], machine_code: dict[str, float]) -> Iterator[str]:
    """What is known of times by the expansion: gates, how far they are from those by machine code, the worst ones."""
    yield EXPANSION
    yield from gates(pairs)
    apart = sorted(
        abs(pair.predicted / machine_code[pair.point.id] - 1) for pair in pairs if pair.point.id in machine_code
    )
    within = [sum(one <= bound for one in apart) for bound in (0.05, 0.1, 0.25)]
    yield ""
    yield (
        f"Of {len(apart)} points that have both, {within[0]} lie within 5 % of the time by machine code, {within[1]} "
        f"within 10 %, {within[2]} within 25 %; the median is {apart[len(apart) // 2]:.1%}."
    )
    worst = sorted(pairs, key=lambda pair: -abs(pair.error))[:LARGEST]
    shown = ", ".join(f"`{pair.point.id}` {pair.error:+.0%}" for pair in worst)
    yield f"The largest errors: {shown}."


def page(
    measured: dict[str, Any],
    predicted: dict[str, Any],
    remarks: str,
    seen: list[dict[str, Any]] | None = None,
    by_expansion: dict[str, Any] | None = None,
) -> str:
    """The page."""
    pairs = compared(measured, predicted)
    expanded = compared(measured, by_expansion or {})
    parts = [HEAD]
    if seen:
        parts += ["## Looks at points that were held out", "", *looks(seen), ""]
    for split, title in TITLES.items():
        chosen = [pair for pair in pairs if pair.point.split == split]
        if chosen:
            parts += [f"## {title}", "", *gates(chosen), ""]
    if expanded:
        parts += [*without_assembler(expanded, {pair.point.id: pair.predicted for pair in pairs}), ""]
    parts += ["## Points", "", *table(pairs), ""]
    missing = [point.id for point in points() if point.id not in {pair.point.id for pair in pairs}]
    if missing:
        text = f"{len(missing)} of {len(points())} points: {', '.join(missing)}."
        parts += ["## Not measured or not predicted yet", "", text, ""]
    failed = [f"- `{name}`: {row['error']}" for name, row in predicted.items() if "error" in row]
    if failed:
        parts += ["## What failed", "", *failed, ""]
    return "\n".join([*parts, remarks]).rstrip() + "\n"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.accuracy", description=__doc__)
    parser.add_argument("page", type=Path)
    given = parser.parse_args()
    remarks = DATA / "remarks.md"
    text = remarks.read_text(encoding="utf-8") if remarks.exists() else ""
    seen = json.loads((DATA / "looks.json").read_text(encoding="utf-8"))
    expansion = rows(DATA / "h200-expansion.jsonl")
    made = page(rows(DATA / "h200.jsonl"), rows(DATA / "h200-predicted.jsonl"), text, seen, expansion)
    given.page.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
