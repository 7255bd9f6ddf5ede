"""One group of points: a functional pass, then a row for each of its rates. Failures become rows, too."""

import re
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kernbench
from kernbench.bench import find, run_bench
from kernbench.bench.definition.machines import load_machine, machine_key
from kernbench.bench.discovery.libraries import blamed
from kernbench.common.errors import KernbenchError, MachineError, traced
from kernbench.result.launches import bound_of, joined_metrics
from kernbench.result.reading import Data
from kernbench.result.run import Run
from kernbench.sweep.planning.plan import Group, Plan, Point, one_line
from kernbench.targets.registry import of_run

Row = Data
_PACKAGE = str(Path(kernbench.__file__).parent)
_LOCATION = re.compile(r"(?P<location>[^\s:][^:\n]*:[1-9]\d{0,8}): ")
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class Refusal:
    """Why the points of a group cannot be run."""

    why: str


@dataclass(frozen=True)
class Failure:
    """What went wrong with points that should run, and where: `file:line`, or empty if unknown."""

    why: str
    where: str = ""

    def row(self) -> Row:
        """The columns of a failed point's row."""
        return {"failed": self.why, "failed_at": self.where or None}


def failure(error: BaseException) -> Failure:
    """An error as stored in a row, with the line of the kernel or bench it comes from."""
    text = one_line(error)
    # exceptions of a bench's function are wrapped, with the line in front
    found = _LOCATION.match(text)
    text = text[found.end() :] if found else text
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        text = text if text.startswith(OUT_OF_MEMORY) else f"{OUT_OF_MEMORY}: {text}" if text else OUT_OF_MEMORY
    elif not isinstance(error, KernbenchError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return Failure(text, found["location"] if found else _location(error))


def _location(error: BaseException) -> str:
    """The kernel's own line, or the last one outside this package and installed packages."""
    where = getattr(error, "where", None)
    if where is not None and hasattr(where, "line"):
        return f"{where.file}:{where.line}"
    lines = [(frame.f_code.co_filename, line) for frame, line in traced(error)]
    own = [f"{file}:{line}" for file, line in lines if _is_somebodys(file)]
    return own[-1] if own else ""


def _is_somebodys(file: str) -> bool:
    """Whether a file is user code: neither of this package nor installed; compiled modules name files that do not
    exist.
    """
    return not file.startswith((_PACKAGE, sys.base_prefix)) and "site-packages" not in file and Path(file).is_file()


Pass = Run | Refusal | Failure


def functional_pass(plan: Plan, group: Group) -> Pass:
    """The run that all points of a group share; a refusal if the bench has no host for them."""
    hosts: list[Any] = []
    try:
        bench = find(plan.bench)

        def host(*arguments: object) -> Any:
            hosts.append(bench.host(*arguments))
            return hosts[-1]

        settings = {**group.settings, **group.shapes}
        watched = replace(bench, host=host)
        return run_bench(watched, plan.panel, settings, plan.seed, shapes_only=plan.shapes_only, recorded=True)
    except KernbenchError as error:
        # errors after the host was made are not refusals
        if hosts:
            return failure(error)
        return Refusal(one_line(error).removeprefix(f"panel {plan.panel}: "))
    except Exception as error:
        return failure(blamed(error, [Path(plan.bench)]) or error)
    except BaseException as error:
        # if Ctrl-C is ignored, as in a worker, the bench itself has raised the KeyboardInterrupt
        if isinstance(error, SystemExit) or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            return failure(error)
        raise


def time_points(group: Group, run: Pass) -> Iterator[Row]:
    """The results of each point of the group of `run`, in order, without the swept values."""
    return Judged(group, run).rows(group.rates)


class Judged:
    """A group after its functional pass: times requested points, part by part."""

    def __init__(self, group: Group, run: Pass):
        self._shapes, self._run = group.shapes, run
        self._timer: _Timer | None = None

    def rows(self, rates: Sequence[Point]) -> Iterator[Row]:
        """The results of points with these rates, in order."""
        run = self._run
        if isinstance(run, Refusal):
            return repeat({"refused": run.why}, len(rates))
        if isinstance(run, Failure):
            return repeat(run.row(), len(rates))
        verdict = {"right": run.right, "safe": run.safe, "commands": run.metrics.get("commands")}
        if not run.ok or run.recording is None:
            return repeat(verdict, len(rates))
        return (self._timed(run, verdict, one) for one in rates)

    def _timed(self, run: Run, verdict: Row, rates: Point) -> Row:
        """One point; a machine on which the run cannot be timed refuses it."""
        try:
            self._timer = self._timer or _Timer(self._shapes, run)
            return verdict | self._timer.results(rates)
        except MachineError as error:
            return verdict | {"refused": one_line(error)}
        except Exception as error:
            return failure(error).row()


class _Timer:
    """Times one run repeatedly; later timings reuse the lowered graph."""

    def __init__(self, shapes: Point, run: Run):
        self._target = of_run(run)
        base = load_machine(SimpleNamespace(**run.origin["parameters"]))
        self._machine = base.override({str(machine_key(k)): v for k, v in shapes.items()})
        self._recordings = [launch.recording for launch in run.launches] or [run.recording]
        self._timings: list[Any] = []

    def results(self, rates: Point) -> Row:
        """The row of one point."""
        machine = self._machine.override({str(machine_key(k)): v for k, v in rates.items()})
        if self._timings:
            self._timings = [timing.again(machine) for timing in self._timings]
        else:
            self._timings = [self._target.time_recording(recording, machine) for recording in self._recordings]
        each = [self._target.summary(timing) for timing in self._timings]
        return _flat(joined_metrics(each) if len(each) > 1 else each[0])


def gap_column(cause: str) -> str:
    """The column of a cause of the gap."""
    return f"gap_{_word(cause)}_ps"


def floor_column(name: str) -> str:
    """The column of a floor."""
    return f"floor_{_word(name)}_ps"


def utilisation_column(engine: str) -> str:
    """The column of an engine's utilisation."""
    return f"utilisation_{_word(engine)}"


@cache
def _word(name: str) -> str:
    return name.lower().replace(" ", "_")


def _flat(metrics: Data) -> Row:
    row: Row = {"time_ps": metrics["time_ps"], "bound": bound_of(metrics), "floor_ratio": metrics["floor_ratio"]}
    row["caveat"] = metrics.get("caveat") or None
    row |= {utilisation_column(k): v for k, v in metrics["utilisation"].items()}
    row |= {floor_column(k): v for k, v in metrics["floors_ps"].items()}
    row |= {gap_column(cause): time for cause, time in metrics["gap_ps"].items()}
    return row
