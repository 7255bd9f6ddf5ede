"""Runs a case whose test is a host program that drives one chip: an orchestration in Python, or the test's own
`test_run` if it has none.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from kernbench.common.errors import BenchError, KernbenchError, said
from kernbench.npu.chip import Chip
from kernbench.npu.scene.cases import Case
from kernbench.npu.scene.host_program import Callables, CallConfig, Worker
from kernbench.npu.scene.offered import Scalar, TensorArg
from kernbench.npu.scene.sources import changes_of, kernels_of, orchestration_of, own, put_back, value_of
from kernbench.result.run import Run
from kernbench.safety.budget import Budget

# what a test's program may be given, by the names of its parameters
_GIVEN = ("st_worker", "st_platform")


def run_program(case: Case, budget: Budget | None) -> tuple[Run, str]:
    """Run the program of a case; returns a Run of all its launches, and why the result is wrong."""
    runs: list[Run] = []
    tasks = _tasks(case)

    def launch(task: str, specs: list[TensorArg | Scalar]) -> None:
        table = tasks.get(task)
        if table is None:
            raise BenchError(f"{case.title}: {task!r} is no task of the chip: there are {', '.join(tasks)}")
        chip = Chip(case.chip, changes_of(case), kernels=kernels_of(case, table), budget=budget)
        run = chip.launch(orchestration_of(case, specs, table), *(value_of(spec) for spec in specs))
        put_back(specs, run)
        runs.append(chip.retime(run) if run.safe else run)

    worker = Worker(launch, case.chip)
    program = case.test.CALLABLE.get("orchestration")
    wrong = _orchestrated(case, worker, program) if callable(program) else _of_test(case, worker)
    if not runs:
        raise BenchError(wrong or f"{case.title}: the program of the host launches nothing on a chip")
    return together(runs), wrong


def together(runs: list[Run]) -> Run:
    """One Run of several launches, one after the other; the host's own time is not known."""
    if len(runs) == 1:
        return runs[0]
    findings = [finding for run in runs for finding in (*run.findings, *run.formal)]
    times = [run.metrics.get("time_ps") for run in runs]
    known = [time for time in times if isinstance(time, int)]
    metrics = {**runs[-1].metrics, **({"time_ps": sum(known)} if len(known) == len(times) else {})}
    status = next((run.status for run in runs if run.findings), runs[-1].status)
    return replace(runs[-1], findings=findings, formal=[], status=status, metrics=metrics, launches=runs)


def _tasks(case: Case) -> dict[str, Mapping[str, object]]:
    """The callables of a test that run on the chip, by name."""
    return {name: table for name, table in _listed(case).items() if "orchestration" in table}


def _listed(case: Case) -> dict[str, Mapping[str, object]]:
    listed = case.test.CALLABLE.get("callables", [])
    return {str(table["name"]): table for table in listed} if isinstance(listed, (list, tuple)) else {}


def _handles(case: Case) -> dict[str, object]:
    """Tasks of the chip by name, and their signatures."""
    found: dict[str, object] = {}
    for name, table in _tasks(case).items():
        found[name] = name
        found[f"{name}_sig"] = cast("Mapping[str, object]", table["orchestration"]).get("signature", [])
    return found


def _functions(case: Case) -> dict[str, object]:
    """Host functions by name."""
    return {name: table["callable"] for name, table in _listed(case).items() if "callable" in table}


def _orchestrated(case: Case, worker: Worker, program: Callable[..., object]) -> str:
    """Run an orchestration in Python on the test's arguments; returns the failure of the test's comparison."""
    test = case.test()
    given = own(case, "generate_args", test.generate_args, case.params)
    golden = None if case.skips_golden else given.clone()
    if golden is not None:
        own(case, "compute_golden", test.compute_golden, golden, case.params)
    callables = Callables({**_handles(case), **_functions(case)})
    _called(case, program, worker, callables, given, CallConfig(**case.config))
    if golden is None:
        return ""
    try:
        test.compare_outputs(given, golden, given.tensor_names(), case.params)
    except Exception as error:
        return str(error) or f"the test's own comparison raises {type(error).__name__}"
    return ""


def _of_test(case: Case, worker: Worker) -> str:
    """Run the test's own `test_run`; returns the failure that it reports."""
    vars_of = cast("dict[str, object]", {"st_worker": worker, "st_platform": case.chip})
    test = type(
        case.test.__name__, (case.test,), {"_st_chip_handles": _handles(case), "_st_sub_handles": _functions(case)}
    )
    method = cast("Callable[..., object]", getattr(test(), "test_run"))  # noqa: B009
    wanted = list(inspect.signature(method).parameters)
    if set(wanted) - set(_GIVEN):
        raise BenchError(f"{case.title}: test_run wants {', '.join(wanted)}; offered are {', '.join(_GIVEN)}")
    try:
        _called(case, method, **{name: vars_of[name] for name in wanted})
    except AssertionError as error:
        return f"test_run: {error}" if str(error) else "an assertion of test_run does not hold"
    return ""


def _called(case: Case, program: Callable[..., object], *given: object, **named: object) -> None:
    """Call a host program; its exceptions, other than its own assertions, are the reason why it cannot run here."""
    try:
        program(*given, **named)
    except (KernbenchError, AssertionError):
        raise
    except Exception as error:
        raise BenchError(f"{case.title}: the program of the host raises {said(error)}") from None
