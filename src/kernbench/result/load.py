"""Reads runs back from the JSON of `kernbench run --json` or `Run.save`; invalid files are refused with a message."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kernbench.common.errors import MisuseError
from kernbench.result.comparison import read_comparison
from kernbench.result.finding import Finding, SourceLocation, read_fault, read_finding
from kernbench.result.reading import Data, Reader
from kernbench.result.run import SCHEMA, Run, Status
from kernbench.result.spans import read_timeline

# runs of the largest benches take some tens of MiB
MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class Loaded:
    """The runs of a file, and the name of their bench; empty if the file contains a single run without it."""

    bench: str
    runs: list[Run]


def load_runs(path: str | Path) -> Loaded:
    """The runs of a file; the values of their outputs and their recordings are not saved."""
    data = Reader(_parse(Path(path)), str(path))
    held = data.of(dict)
    if "command" in held and not {"runs", "status"} & set(held):
        raise MisuseError(f"{path} holds no run: kernbench {held['command']} wrote it")
    if "runs" not in held:
        return Loaded("", [read_run(data)])
    if "schema" in held:
        _check_schema(data)
    runs = [read_run(one) for one in data["runs"]]
    if not runs:
        raise MisuseError(f"{path}: no run is in it")
    return Loaded(data["bench"].of(str) if "bench" in held else "", runs)


def _parse(path: Path) -> object:
    try:
        with path.open("rb") as file:
            held = file.read(MOST_BYTES + 1)
        if len(held) > MOST_BYTES:
            raise MisuseError(f"{path} holds no run, or goes on without end: at most {MOST_BYTES >> 20} MiB are read")
        return json.loads(held)
    except OSError as error:
        raise MisuseError(f"{path} cannot be read: {error.strerror}") from None
    except RecursionError:
        raise MisuseError(f"{path} is no file of kernbench: it is nested too deeply") from None
    except ValueError as error:
        raise MisuseError(f"{path} is no JSON: {error}; kernbench run --json FILE writes what is wanted") from None


def read_run(data: Reader) -> Run:
    """Read what `Run.to_dict` wrote; verdicts are computed again."""
    _check_schema(data)
    status = _read_status(data["status"])
    comparison = data["comparison"].maybe(lambda held: [read_comparison(one) for one in held])
    views = {**data["views"].of(dict), "outputs": data["outputs"].of(dict), "sources": _read_sources(data["sources"])}
    lines = _lines(views["sources"])
    if "by_source" in views:
        for row in data["views"]["by_source"]:
            _check_line(row)
    return Run(
        {},
        [_with_lines(read_fault(one), lines) for one in data["findings"]],
        data["checked"].texts(),
        status,
        comparison=comparison,
        timeline=data["timeline"].maybe(read_timeline),
        metrics=_read_metrics(data["metrics"]),
        views=views,
        origin=data["origin"].of(dict),
        launches=[_read_launch(one) for one in data["launches"]] if "launches" in data.of(dict) else [],
        formal=[_with_lines(one, lines) for one in _read_formal(data)],
    )


def _read_formal(data: Reader) -> list[Finding]:
    """Formal findings; older files have none."""
    return [read_finding(one) for one in data["formal"]] if "formal" in data.of(dict) else []


def _read_launch(data: Reader) -> Run:
    """One of several launches, without what is saved only for the whole run."""
    return Run(
        {},
        [read_fault(one) for one in data["findings"]],
        data["checked"].texts(),
        _read_status(data["status"]),
        metrics=_read_metrics(data["metrics"]),
        views={"outputs": data["outputs"].of(dict)},
        origin=data["origin"].of(dict),
        formal=_read_formal(data),
    )


def _read_status(data: Reader) -> Status:
    status = data.of(str)
    if status not in list(Status):
        raise data.refuse(f"one of {', '.join(Status)} is wanted")
    return Status(status)


def _check_schema(data: Reader) -> None:
    schema = data.of(dict).get("schema")
    if schema == SCHEMA:
        return
    if type(schema) is not int:
        raise MisuseError(f"{data.path} is no run: it does not say which schema it has; this kernbench reads {SCHEMA}")
    age = "an older" if schema < SCHEMA else "a newer"
    raise MisuseError(
        f"{data.path} was written by {age} kernbench: schema {schema}, and this one reads {SCHEMA}; "
        "run it again with kernbench run ... --json FILE"
    )


def _read_sources(data: Reader) -> dict[str, object]:
    for _, source in data.items():
        source["name"].of(str)
        for part in source["parts"]:
            if len(part.of(list)) != 2:
                raise part.refuse("the number of the first line, and lines, are wanted")
            first, lines = part
            first.natural()
            lines.texts()
    return data.of(dict)


def _lines(sources: Data) -> dict[str, dict[int, str]]:
    """File -> its saved lines, by number."""
    return {
        file: {number: line for first, lines in source["parts"] for number, line in enumerate(lines, first)}
        for file, source in sources.items()
    }


def _with_lines(finding: Finding, lines: dict[str, dict[int, str]]) -> Finding:
    """The finding with the saved lines around its source locations."""
    others = tuple(replace(other, where=_surrounded(other.where, lines)) for other in finding.others)
    return replace(finding, where=_surrounded(finding.where, lines), others=others)


def _surrounded(location: SourceLocation | None, lines: dict[str, dict[int, str]]) -> SourceLocation | None:
    return location if location is None or location.file not in lines else replace(location, lines=lines[location.file])


def _check_line(row: Reader) -> None:
    """Check what reports compute with of a line of the source where warps spend their cycles."""
    row["source"]["file"].of(str)
    row["source"]["line"].natural()
    row["text"].of(str)
    for key in ("share", "time_ps"):
        row[key].finite()
    _finite_values(row["waits"])


def _in_all(held: Reader) -> None:
    for key in ("launches", "time_ps", "longest"):
        held[key].finite()


def _finite_or_none(held: Reader) -> None:
    held.maybe(Reader.finite)


def _finite_values(held: Reader) -> None:
    for _, value in held.items():
        value.finite()


def _rates(held: Reader) -> None:
    for _, rate in held.items():
        for part in ("amount", "achieved", "peak"):
            rate[part].finite()


def _text(held: Reader) -> None:
    held.of(str)


# readers of the metrics that reports compute with; other metrics may be anything
_METRICS: dict[str, Callable[[Reader], object]] = {
    **dict.fromkeys(("time_ps", "gpu_time_ns", "limit_ratio", "floor_ratio"), _finite_or_none),
    **dict.fromkeys(("commands", "warp_instructions", "tasks", "flops"), Reader.finite),
    **dict.fromkeys(("load_bytes", "store_bytes", "send_bytes"), Reader.finite),
    **dict.fromkeys(("floors_ps", "limits_ps", "gap_ps", "critical_path_ps"), _finite_values),
    **dict.fromkeys(("utilisation", "busy_ps", "sensitivity"), _finite_values),
    **dict.fromkeys(("bound", "limit", "limited_by"), _text),
    "engines": Reader.texts,
    "in_all": _in_all,
    "rates": _rates,
}


def _read_metrics(data: Reader) -> dict[str, object]:
    metrics = data.of(dict)
    for key in metrics:
        if key in _METRICS:
            _METRICS[key](data[key])
    if "time_ps" in metrics:
        bound = data["bound"].of(str)
        data["time_ps"].finite()
        data["floors_ps"][bound].finite()
        for key in ("floor_ratio", "utilisation"):
            _METRICS[key](data[key])
    if "limits_ps" in metrics:
        data["limits_ps"][data["limit"].of(str)].finite()
        _METRICS["limit_ratio"](data["limit_ratio"])
    return metrics
