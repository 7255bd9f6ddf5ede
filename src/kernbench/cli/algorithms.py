"""`kernbench run --all-algorithms`: every algorithm that does a panel's job, ranked by time, with the reason."""

from pathlib import Path
from typing import Any

from kernbench.bench import Variant, parameters_of
from kernbench.cli.document import write_document
from kernbench.cli.output import FOUND, RIGHT_AND_SAFE, progress, results
from kernbench.cli.report import write_page
from kernbench.cli.request import Request
from kernbench.common.errors import BenchError, KernbenchError
from kernbench.report import Contender, ranking_table, ranking_text, run_text
from kernbench.report.ranking import ranked as in_order
from kernbench.result.run import Run


def rank(request: Request, json: Path | None, html: Path | None = None) -> int:
    """Run and rank; the exit code. An algorithm that cannot run as asked is listed with the reason: no failure."""
    bench, variants = request.bench, _variants(request)
    ranked = _run_all(request, variants)
    console, failed = results(), False
    runs: list[tuple[str, Run]] = []
    for panel, contenders in ranked.items():
        console.print(ranking_table(f"{bench.name} {panel or ''}".strip(), contenders))
        console.print(ranking_text(contenders, _own(request, panel, variants[panel])), soft_wrap=True)
        ran = [(c.name, c.run) for c in contenders if c.run is not None]
        bad = [(name, run) for name, run in ran if not run.ok]
        for name, run in bad:
            console.print(run_text(name, run), highlight=False, soft_wrap=True)
        failed = failed or bool(bad) or not ran
        runs += [(f"{request.title(panel)} {name}", run) for name, run in ran]
    if html is not None and runs:
        write_page(html, bench.name, runs)
    data = {"bench": bench.name, "runs": [run.to_dict() for _, run in runs], "ranking": _ranking(ranked)}
    write_document(json, "run", data)
    return FOUND if failed else RIGHT_AND_SAFE


def _run_all(request: Request, variants: dict[str | None, dict[str, Variant]]) -> dict[str | None, list[Contender]]:
    ranked: dict[str | None, list[Contender]] = {}
    with progress(sum(map(len, variants.values()))) as bar:
        for panel, ways in variants.items():
            for name, way in ways.items():
                bar.update(bar.task_ids[0], description=f"{request.title(panel)} {name}")
                ranked.setdefault(panel, []).append(_run(request, panel, name, way))
                bar.advance(bar.task_ids[0])
    return ranked


def _ranking(contenders: dict[str | None, list[Contender]]) -> list[dict[str, Any]]:
    """For each panel its algorithms, fastest first; `run` is the place of its run in `runs`."""
    numbers: dict[int, int] = {}
    for one in (c for ways in contenders.values() for c in ways if c.run is not None):
        numbers[id(one)] = len(numbers)
    return [
        {
            "panel": panel,
            "algorithms": [
                {"name": c.name, "idea": c.idea, "run": numbers.get(id(c)), "refused": c.refusal or None}
                for c in in_order(ways)
            ],
        }
        for panel, ways in contenders.items()
    ]


def _variants(request: Request) -> dict[str | None, dict[str, Variant]]:
    bench, values = request.bench, request.values
    if bench.variants is None:
        raise BenchError(f"bench {bench.name} has one algorithm only: it names no variants")
    size = request.options["size"]
    found = {p: dict(bench.variants(parameters_of(bench, p, values, size))) for p in request.panels}
    chosen = {key for ways in found.values() for way in ways.values() for key in way.settings} & set(values)
    if chosen:
        raise BenchError(f"--all-algorithms runs every {', '.join(chosen)}: leave --set {min(chosen)} away")
    return found


def _own(request: Request, panel: str | None, ways: dict[str, Variant]) -> str:
    """The variant that the panel itself asks for."""
    settings = {**request.bench.panels.get(panel or "", {}), **request.values}
    chosen = (n for n, way in ways.items() if all(settings.get(k) == v for k, v in way.settings.items()))
    return next(chosen, "")


def _run(request: Request, panel: str | None, name: str, way: Variant) -> Contender:
    try:
        run = request.run(panel, dict(way.settings), timed=True)
    except KernbenchError as error:
        return Contender(name, way.idea, None, str(error))
    return Contender(name, way.idea, run)
