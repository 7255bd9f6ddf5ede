"""The process that runs one bench file: loads it, runs its panels, and sends each case.

Messages, in this order: `loaded` (the panels), then for each panel `begin` and `case`; or `refused` if the file
could not be loaded, or `no_bench` if it makes no bench and none was claimed. Errors are sent as failed cases; the
process itself may end at any time.
"""

import time
from collections.abc import Callable
from pathlib import Path

from kernbench.bench.definition.bench import Bench
from kernbench.bench.discovery.libraries import blamed
from kernbench.bench.discovery.modules import error_at
from kernbench.bench.discovery.registry import load_file
from kernbench.bench.running.orders import ALWAYS
from kernbench.bench.running.runner import run_bench
from kernbench.common.errors import KernbenchError
from kernbench.result.acknowledged import Entry
from kernbench.result.reading import Fields
from kernbench.result.run import Run
from kernbench.safety.confined import is_beyond_memory

Send = Callable[[dict[str, object]], None]


def check_file(given: Fields, send: Send) -> None:
    """Run the panels of a file, or those that `given` names; messages as above.

    `given`: `file`, `claimed` (whether the file is known to make a bench), `seed`, `schedule`, `baseline` (rows),
    `panels` (None for all), `timeline` (whether the runs keep theirs) and `strict` (whether formal findings count).
    """
    file = Path(given["file"])
    try:
        bench = load_file(file)
    except BaseException as error:
        send({"refused": _text(file, error)} if given["claimed"] else {"no_bench": True})
        return
    named: list[str] = given["panels"] or list(bench.panels) or [bench.name]
    send({"loaded": named})
    for title in named:
        send({"begin": title})
        send({"case": _case(file, bench, title if bench.panels else None, given)})


def _case(file: Path, bench: Bench, panel: str | None, given: Fields) -> dict[str, object]:
    began = time.perf_counter()
    run: Run | None = None
    error = ""
    try:
        known = [Entry(**row) for row in given["baseline"]]
        options = {"seed": given["seed"], "schedule": given["schedule"], "baseline": known, "strict": given["strict"]}
        run = run_bench(bench, panel, timed=True, second_order=ALWAYS, **options)
    except BaseException as raised:
        error = _text(file, raised)
    if run is not None and not given["timeline"]:
        run.timeline = None
    return {"seconds": time.perf_counter() - began, "run": None if run is None else run.to_dict(), "error": error}


def _text(file: Path, error: BaseException) -> str:
    """The text of an error; for errors that are not kernbench's, with the file's line."""
    if isinstance(error, KernbenchError):
        is_short = error.__cause__ is not None and is_beyond_memory(error.__cause__)
        return f"{error}\n  next: a smaller size, or more with --max-memory SIZE" if is_short else str(error)
    if isinstance(error, Exception) and (why := blamed(error, [file.resolve()])) is not None:
        return str(why)
    line, text = error_at(error, file.resolve())
    return f"{file.resolve()}{f':{line}' if line else ''}: it raised {text}"
