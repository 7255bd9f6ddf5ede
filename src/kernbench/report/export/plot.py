"""A sweep as a picture: the chosen metric over the first swept key, a line for each combination of the others."""

from io import BytesIO
from pathlib import Path
from typing import Any

from kernbench.common.errors import MisuseError
from kernbench.result.reading import Data
from kernbench.result.run import write_bytes

ENDINGS = (".png", ".svg")


def check_plot(file: Path) -> Any:
    """The `Figure` that draws `file`, whose suffix selects PNG or SVG; needs matplotlib (the extra `sweep`)."""
    if file.suffix not in ENDINGS:
        raise MisuseError(f"--plot {file}: the file ends in {' or '.join(ENDINGS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MisuseError("a plot needs matplotlib: pip install 'kernbench[sweep]'") from None
    return Figure


def plot_sweep(file: Path, keys: tuple[str, ...], metric: str, rows: list[Data]) -> None:
    """Write the plot atomically; rows without the metric are left out."""
    figure = check_plot(file)(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    shown = [row for row in rows if row.get(metric) not in ("", None)]
    ticks = {value: number for number, value in enumerate(dict.fromkeys(str(row[keys[0]]) for row in rows))}
    lines: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    for row in shown:
        point = (ticks[str(row[keys[0]])], float(row[metric]))
        lines.setdefault(tuple(str(row[k]) for k in keys[1:]), []).append(point)
    for label, points in lines.items():
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", label=", ".join(label))
    axes.set_xticks(list(ticks.values()), list(ticks))
    axes.set_xlabel(keys[0])
    axes.set_ylabel(metric)
    axes.set_ylim(bottom=min([0.0, *(float(row[metric]) for row in shown)]))
    axes.grid(alpha=0.3)
    if len(keys) > 1 and lines:
        axes.legend(title=", ".join(keys[1:]))
    content = BytesIO()
    figure.savefig(content, format=file.suffix.removeprefix("."))
    write_bytes(file, content.getvalue())
