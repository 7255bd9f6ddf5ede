"""The table of a run: million thread-instructions a second of each launch, geometric means, and ratios to earlier."""

from collections.abc import Iterator, Mapping, Sequence
from math import exp, log

from .measuring import Figures, Row
from .registry import GROUPS, PRODUCTS

HEAD = f"{'launch':38} {'arch':7} {'M instr':>8} {'checked':>9} {'M/s':>8} {'unchecked':>9} {'M/s':>8}"


def figures(row: Row, mode: str) -> Figures | None:
    """What launches of one kind took, if they were measured and right."""
    return row.get("checked") if mode == "checked" else row.get("unchecked")


def speed(row: Row, mode: str) -> float | None:
    """Million thread-instructions a second."""
    found = figures(row, mode)
    return None if found is None else found["thread_instructions"] / found["seconds"] / 1e6


def mean(numbers: Sequence[float]) -> float:
    """The geometric mean."""
    return exp(sum(map(log, numbers)) / len(numbers))


def line(row: Row, before: Row | None = None) -> str:
    """A launch: its count, and seconds and speed of each kind, with the ratio to an earlier run."""
    title = f"{row['kernel'] + ' ' + row['size']:38} {row['arch']:7}"
    if "error" in row:
        return f"{title} NO FIGURE: {row['error'].splitlines()[0][:150]}"
    count = next(found["thread_instructions"] for mode in ("checked", "unchecked") if (found := figures(row, mode)))
    columns = [f"{count / 1e6:8.1f}"]
    for mode in ("checked", "unchecked"):
        found, rate = figures(row, mode), speed(row, mode)
        columns.append(" " * 18 if found is None or rate is None else f"{found['seconds']:8.3f}s {rate:8.1f}")
    return " ".join([title, *columns, *([] if before is None else compared(row, before))])


def compared(row: Row, before: Row) -> Iterator[str]:
    """How many times as fast as before, and whether counts and bits are what they were."""
    for mode in ("checked", "unchecked"):
        now, then = figures(row, mode), figures(before, mode)
        if now is None or then is None:
            continue
        yield f"{then['seconds'] / now['seconds']:7.2f}x"
        if now["thread_instructions"] != then["thread_instructions"]:
            yield f"({mode}: counted {then['thread_instructions'] / 1e6:.1f} before)"
        if now["outputs"] != then["outputs"]:
            yield f"({mode}: other bits)"


def _kinds(rows: Sequence[Row]) -> Iterator[tuple[str, list[Row]]]:
    for group in GROUPS:
        if inside := [row for row in rows if row["group"] == group]:
            yield group, inside
    if rest := [row for row in rows if row["group"] != PRODUCTS]:
        yield "all but products", rest
    yield "all", list(rows)


def summary(rows: Sequence[Row], earlier: Mapping[str, Row]) -> Iterator[str]:
    """Geometric means by group and over all, ratios to an earlier run, and the slowest."""
    for mode in ("checked", "unchecked"):
        measured = [row for row in rows if "error" not in row and speed(row, mode) is not None]
        if not measured:
            continue
        for group, inside in _kinds(measured):
            yield _mean_line(f"{mode}, {group}", inside, mode, earlier)
        slowest = min(measured, key=lambda row: speed(row, mode) or 0.0)
        yield f"{mode}, slowest: {speed(slowest, mode):.1f} {slowest['name']}"


def _mean_line(title: str, rows: Sequence[Row], mode: str, earlier: Mapping[str, Row]) -> str:
    speeds = [rate for row in rows if (rate := speed(row, mode)) is not None]
    told = f"{title} ({len(rows)}): geometric mean {mean(speeds):.1f} ({min(speeds):.1f} to {max(speeds):.1f})"
    ratios = [
        then["seconds"] / now["seconds"]
        for row in rows
        if row["name"] in earlier and (now := figures(row, mode)) and (then := figures(earlier[row["name"]], mode))
    ]
    return told + (f"; {mean(ratios):.2f} times as fast as before ({len(ratios)} launches)" if ratios else "")
