"""Running a bench: parameters, inputs from a seed, launch, and the golden's verdict, in one Run."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernbench import golden, machine
from kernbench.bench import parameters
from kernbench.bench.definition import Bench, Expected
from kernbench.common.errors import BenchError, unknown
from kernbench.result.comparison import Comparison
from kernbench.result.run import Run, Status
from kernbench.safety.budget import Budget

MACHINE = "machine"


def run_bench(
    bench: Bench,
    panel: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    schedule: str | int | None = None,
    budget: Budget | None = None,
    timed: bool = False,
) -> Run:
    """Run `bench` with a panel's values and `settings` over its defaults; `machine.KEY` settings change the machine.

    `schedule` and `budget` replace those of the bench's host. With `timed`, a run that is right and safe gets its time
    on the machine.
    """
    chosen, overrides = _split({**_panel(bench, panel), **(settings or {})})
    p = parameters.make(bench.parameters, chosen)
    inputs = bench.inputs(p, np.random.default_rng(seed))
    host = bench.host(p, _machine(bench, p, overrides))
    if schedule is not None:
        host.schedule = schedule
    if budget is not None:
        host.budget = budget
    run = bench.launch(p, inputs, torch=host)
    if not isinstance(run, Run):
        raise BenchError(f"bench {bench.name}: launch must return the Run of torch.launch; got {type(run).__name__}")
    if run.status is Status.FINISHED and run.outputs:
        run.comparison = _compare(bench, run, bench.golden(p, inputs))
    run.origin.update(
        bench=bench.name,
        panel=panel,
        seed=seed,
        parameters={d.name: getattr(p, d.name) for d in parameters.describe(bench.parameters)},
        machine_overrides=overrides,
    )
    return _timed(run, host) if timed else run


def _timed(run: Run, host: Any) -> Run:
    # compiled code: imported only by those who ask for time
    from kernbench.timing import retime

    return retime(run, host.machine)


def _panel(bench: Bench, panel: str | None) -> Mapping[str, Any]:
    if panel is None:
        return {}
    if panel not in bench.panels:
        names = bench.panels or ["none: this bench has no panels"]
        raise BenchError(unknown(f"panel of {bench.name}", panel, names))
    return bench.panels[panel]


def _split(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters, and keys of the machine."""
    prefix = MACHINE + "."
    overrides = {k.removeprefix(prefix): v for k, v in settings.items() if k.startswith(prefix)}
    return {k: v for k, v in settings.items() if not k.startswith(prefix)}, overrides


def _machine(bench: Bench, p: Any, overrides: Mapping[str, Any]) -> machine.Machine:
    name = getattr(p, MACHINE, None)
    if name is None:
        if overrides:
            raise BenchError(f"bench {bench.name} has no machine to change: {', '.join(overrides)}")
        name = "reference"
    return machine.load(name).override(overrides) if overrides else machine.load(name)


def _compare(bench: Bench, run: Run, wanted: Mapping[str, Any]) -> list[Comparison]:
    verdicts = []
    for name, expected in wanted.items():
        if name not in run.outputs:
            raise BenchError(f"bench {bench.name}: golden names output {name!r}; the launch gave {sorted(run.outputs)}")
        verdicts.append(_verdict(name, run.outputs[name], expected))
    return verdicts


def _verdict(name: str, output: Any, expected: Any) -> Comparison:
    if not isinstance(expected, Expected):
        return golden.compare(output, expected, name=name)
    shape = expected.reference.shape
    if output.size == int(np.prod(shape)):
        output = output.reshape(shape)
    return golden.compare(
        output,
        expected.reference,
        name=name,
        compute_dtype=expected.compute_dtype,
        rank_axis=expected.rank_axis,
        ranks=expected.ranks,
    )
