"""`kernbench run --all-algorithms`: every algorithm for a panel's problem, ranked by time, with the reason."""

from dataclasses import replace
from pathlib import Path

from kernbench.bench import Variant, variants_of
from kernbench.cli.arguments.request import Request
from kernbench.cli.commands.report import write_page
from kernbench.cli.output.console import FOUND, RIGHT_AND_SAFE, progress, results
from kernbench.cli.output.document import write_document
from kernbench.cli.processes.parallel import run_all
from kernbench.common.errors import BenchError, KernbenchError
from kernbench.report import Contender, formal_text, ranking_table, ranking_text, run_text
from kernbench.report.compare.ranking import ranked as in_order
from kernbench.result.run import Run

_DIED = "its process died, of memory perhaps: run it alone, with --set instead of --all-algorithms"


def rank(request: Request, json: Path | None, html: Path | None = None) -> int:
    """Run and rank; returns the exit code. An algorithm that cannot run as asked is listed with the reason: no
    failure.
    """
    bench, variants = request.bench, _variants(request)
    # pages and documents include the timelines of all runs, which stay in this process
    drawn = json is not None or html is not None
    ranked = _run_all(request, variants, drawn)
    console, failed = results(), False
    runs: list[tuple[str, Run]] = []
    for panel, contenders in ranked.items():
        console.print(ranking_table(f"{bench.name} {panel or ''}".strip(), contenders))
        console.print(ranking_text(contenders, _own(request, panel, variants[panel])), soft_wrap=True)
        ran = [(c.name, c.run) for c in contenders if c.run is not None]
        bad = [(name, run) for name, run in ran if not run.ok]
        for name, run in bad:
            console.print(run_text(name, run), highlight=False, soft_wrap=True)
        for name, run in ran:
            if run.ok and run.formal:
                console.print(f"{name}:", formal_text(run), highlight=False, soft_wrap=True)
        failed = failed or bool(bad) or not ran or any(c.refusal == _DIED for c in contenders)
        runs += [(f"{request.title(panel)} {name}", run) for name, run in ran]
    if html is not None and runs:
        write_page(html, bench.name, runs)
    write_document(
        json,
        "run",
        lambda: {"bench": bench.name, "runs": [run.to_dict() for _, run in runs], "ranking": _ranking(ranked)},
    )
    return FOUND if failed else RIGHT_AND_SAFE


def _run_all(
    request: Request, variants: dict[str | None, dict[str, Variant]], drawn: bool
) -> dict[str | None, list[Contender]]:
    """Each panel's contenders, in the order of its variants; at real sizes several in parallel, the longest first."""
    tasks = [(panel, name) for panel, ways in variants.items() for name in ways]
    if request.shapes_only:
        tasks = _longest_first({task: _announced(request, task[0], variants[task[0]][task[1]]) for task in tasks})
    runs: dict[tuple[str | None, str], Contender] = {}

    def work(task: tuple[str | None, str]) -> Contender:
        panel, name = task
        return _run(request, panel, name, variants[panel][name], drawn)

    found = run_all(tasks, work, None if request.shapes_only and not drawn else 1)
    with progress(len(tasks)) as bar:
        for (panel, name), contender in found:
            bar.update(bar.task_ids[0], description=f"{request.title(panel)} {name}")
            runs[panel, name] = contender or Contender(name, variants[panel][name].idea, None, _DIED)
            bar.advance(bar.task_ids[0])
    return {panel: [runs[panel, name] for name in ways] for panel, ways in variants.items()}


def _longest_first(limits: dict[tuple[str | None, str], int]) -> list[tuple[str | None, str]]:
    """The order in which contenders are started, by their limits in the bench.

    All algorithms of a panel do the same work, so the largest limit measures that work. One with a lower limit
    uses more PEs, each of which is a program to record: it takes longest.
    """
    work: dict[str | None, int] = {}
    for (panel, _), limit in limits.items():
        work[panel] = max(limit, work.get(panel, 0))
    return sorted(limits, key=lambda task: (-work[task[0]], limits[task]))


def _announced(request: Request, panel: str | None, way: Variant) -> int:
    """The limit that the bench gives for a variant, 0 without one."""
    try:
        return request.limit(panel, dict(way.settings))
    except KernbenchError:
        # it will be refused
        return 0


def _ranking(contenders: dict[str | None, list[Contender]]) -> list[dict[str, object]]:
    """For each panel its algorithms, fastest first; `run` is the index of its run in `runs`."""
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
    found = {p: variants_of(bench, p, values, size) for p in request.panels}
    if empty := [p for p, ways in found.items() if not ways]:
        of = f" for panel {empty[0]}" if empty[0] else ""
        raise BenchError(f"bench {bench.name}: variants names no algorithm{of}")
    chosen = {key for ways in found.values() for way in ways.values() for key in way.settings} & set(values)
    if chosen:
        raise BenchError(f"--all-algorithms runs every {', '.join(chosen)}: leave --set {min(chosen)} away")
    return found


def _own(request: Request, panel: str | None, ways: dict[str, Variant]) -> str:
    """The variant that the panel itself selects."""
    settings = {**request.bench.panels.get(panel or "", {}), **request.values}
    chosen = (n for n, way in ways.items() if all(settings.get(k) == v for k, v in way.settings.items()))
    return next(chosen, "")


def _run(request: Request, panel: str | None, name: str, way: Variant, drawn: bool) -> Contender:
    try:
        run = request.run(panel, dict(way.settings), timed=True, drawn=drawn)
    except KernbenchError as error:
        return Contender(name, way.idea, None, str(error))
    # recordings are not needed any more, and too large to be kept for all
    return Contender(name, way.idea, run if drawn else replace(run, recording=None))
