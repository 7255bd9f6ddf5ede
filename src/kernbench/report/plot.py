"""A sweep as a picture: the chosen metric over the first swept key, a line for each combination of the others."""

from pathlib import Path
from typing import Any

from kernbench.common.errors import MisuseError


def plot_sweep(file: Path, keys: tuple[str, ...], metric: str, rows: list[dict[str, Any]]) -> None:
    """Write a PNG or SVG, by the file's ending; needs matplotlib (the extra `sweep`)."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MisuseError("a plot needs matplotlib: pip install 'kernbench[sweep]'") from None
    if file.suffix not in (".png", ".svg"):
        raise MisuseError(f"--plot {file}: the file ends in .png or .svg")
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    lines: dict[tuple[str, ...], list[tuple[str, float]]] = {}
    for row in rows:
        if row.get(metric) not in ("", None):
            lines.setdefault(tuple(str(row[k]) for k in keys[1:]), []).append((str(row[keys[0]]), float(row[metric])))
    for label, points in lines.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=", ".join(label))
    axes.set_xlabel(keys[0])
    axes.set_ylabel(metric)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if len(keys) > 1:
        axes.legend(title=", ".join(keys[1:]))
    figure.savefig(file)
