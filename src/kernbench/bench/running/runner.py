"""Running a bench: parameters, inputs from a seed, launch, and the golden's verdict, in one Run."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from kernbench.bench.definition import parameters
from kernbench.bench.definition.bench import Bench, Variant
from kernbench.bench.definition.inputs import ShapesOnly
from kernbench.bench.definition.machines import load_machine, machine_changes, split_settings, target_of
from kernbench.bench.discovery.registry import loaded_anew
from kernbench.bench.running.calling import call, inputs_of, limits_of
from kernbench.bench.running.first_wrong import Intermediates
from kernbench.bench.running.judging import judge, worked_ahead
from kernbench.bench.running.orders import (
    ALWAYS,
    CHEAP,
    NEVER,
    Launched,
    NotLoadedAgainError,
    compare_orders,
    kept_inputs,
    may_repeat,
)
from kernbench.bench.running.timing import Timing
from kernbench.common.errors import BenchError, KernbenchError, unknown
from kernbench.result.acknowledged import Entry, acknowledge
from kernbench.result.launches import joined
from kernbench.result.run import Run, Status
from kernbench.safety.budget import FOLLOWS_WORK, GIVEN, Budget
from kernbench.safety.stopping import StoppedError, Stopper
from kernbench.targets import registry
from kernbench.targets.target import check_timed

if TYPE_CHECKING:
    from kernbench.bench.definition.host import Host


def run_bench(
    bench: Bench,
    panel: str | None = None,
    settings: Mapping[str, object] | None = None,
    seed: int = 0,
    schedule: str | int | None = None,
    budget: Budget | Mapping[str, object] | None = None,
    timed: bool = False,
    shapes_only: bool = False,
    size: str | None = None,
    baseline: list[Entry] | None = None,
    stop: Stopper | None = None,
    first_wrong: bool = False,
    second_order: str = NEVER,
    drawn: bool = True,
    strict: bool = False,
    sensitivity: bool = False,
    exact: bool = False,
    blocks: str | None = None,
    recorded: bool = False,
) -> Run:
    """Run `bench` with a panel's values and `settings` over its defaults; `machine.KEY` settings change the machine,
    `chip.KEY` settings the chip.

    `schedule` and `budget` replace those of the bench's host; a budget that is a mapping changes the given limits. With
    `timed`, a run that is right and safe is timed on the machine, and unless `drawn` is False its timeline and views
    are made; `sensitivity` adds what changes would save even if that takes long. With `recorded` it is not timed, but
    can be timed on many machines later. With `shapes_only` nothing is computed and no golden called; inputs are drawn
    from `ShapesOnly`. `size` names one of the bench's sizes, over the panel's values. Findings that the source or
    `baseline` acknowledges do not count, nor formal ones, unless `strict`. `stop` ends the run inside a kernel. With
    `first_wrong` each checkpoint of the kernel is compared with the bench's intermediates, and `views["first_wrong"]`
    has the first that is wrong. With `second_order` ("always", or "cheap": if its counted work is small) a run that is
    safe and not wrong is repeated in another order; a difference is a finding. With `exact`, results have the
    hardware's own bits if the target has such a mode. With `blocks`, such as "0-3,17", all other blocks are left out of
    every grid, and no golden is called.
    """
    _check_order(second_order)
    chosen, changes = split_settings({**_panel(bench, panel), **_size(bench, panel, size), **(settings or {})})
    shapes_only = shapes_only or (size is not None and bench.sizes[size].shapes_only)
    p, host, overrides = _made(bench, panel, chosen, changes)
    host.shapes_only = host.shapes_only or shapes_only
    inputs = inputs_of(bench, p, ShapesOnly() if shapes_only else np.random.default_rng(seed))
    _set_host(bench, p, host, schedule, budget, stop)
    _set_target(p, host, timed or recorded, exact, blocks)
    is_asked = not (host.shapes_only or stop is not None or blocks)
    kept = kept_inputs(inputs, second_order) if is_asked and not first_wrong else None
    comparing = _intermediates(bench, host, p, inputs) if first_wrong else None
    watch = _Watch(host)
    timing = _timing(host, timed, drawn, sensitivity)
    with worked_ahead(bench, p, inputs, is_asked) as ahead:
        run = _acknowledged(_launched(bench, p, inputs, host, stop), list(host.launches), baseline, strict)
        _add_views(run, host, watch, comparing)
        stopped = _note_stop(run, stop)
        if not stopped and _is_judged(run, host):
            run.comparison = call(bench, "golden", judge, bench, run, p, inputs, ahead, timing.begin)
    origin = {"bench": bench.name, "panel": panel, "size": size, "seed": seed, "parameters": _values(bench, p)}
    run.origin.update(origin, machine_overrides=overrides)
    if not stopped and kept is not None and may_repeat(first := Launched(run, host, watch.kernels), second_order):
        _Repeat(bench, panel, chosen, changes, kept, host.budget, baseline, strict, exact).compare(first, second_order)
    return _timed(bench, p, timing.of(run), host) if timed and not stopped else run


def _check_order(second_order: str) -> None:
    if second_order not in (NEVER, CHEAP, ALWAYS):
        raise BenchError(unknown("second_order", second_order, (NEVER, CHEAP, ALWAYS)))


def _note_stop(run: Run, stop: Stopper | None) -> bool:
    """Record in a run that it was stopped inside a kernel, and where; whether it was."""
    if stop is None or stop.met is None:
        return False
    run.status, run.views["stopped"] = Status.STOPPED, stop.met.view()
    return True


@dataclass
class _Repeat:
    """Executes the launch of a bench anew, with a clean state: its file is loaded again."""

    bench: Bench
    panel: str | None
    chosen: Mapping[str, object]
    changes: Mapping[str, object]
    inputs: Mapping[str, object]
    budget: Budget
    baseline: list[Entry] | None
    strict: bool
    exact: bool

    def compare(self, first: Launched, wanted: str) -> None:
        """Repeat a launch in other orders; a difference becomes a finding of the first."""
        compare_orders(first, self.launched, self.accepted, wanted)
        acknowledge(first.run, self.baseline)

    def launched(self, schedule: str | int) -> Launched:
        """The launch in the order of a schedule, with the original inputs."""
        bench = self.bench = self._loaded()
        p, host, _ = _made(bench, self.panel, self.chosen, self.changes)
        host.schedule, host.budget = schedule, self.budget
        if self.exact:
            target_of(p).compute_exactly(host)
        watch = _Watch(host)
        run = _launched(bench, p, deepcopy(self.inputs), host, None)
        return Launched(_acknowledged(run, list(host.launches), self.baseline, self.strict), host, watch.kernels)

    def _loaded(self) -> Bench:
        try:
            return loaded_anew(self.bench)
        except KernbenchError as error:
            raise NotLoadedAgainError(str(error)) from None

    def accepted(self, launched: Launched) -> bool | None:
        """Whether the golden accepts the outputs of a launch."""
        p, _, _ = _made(self.bench, self.panel, self.chosen, self.changes)
        verdicts = call(self.bench, "golden", judge, self.bench, launched.run, p, self.inputs)
        return all(verdict.passed for verdict in verdicts)


def _made(
    bench: Bench, panel: str | None, chosen: Mapping[str, object], changes: Mapping[str, object]
) -> tuple[object, "Host", dict[str, object]]:
    """The parameters, the context to launch on, and the changes of its machine."""
    try:
        p = parameters.make(bench.parameters, chosen)
        overrides = machine_changes(bench.name, p, changes)
        machine = load_machine(p)
        host = call(bench, "host", bench.host, p, machine.override(overrides) if overrides else machine)
    except KernbenchError as error:
        if panel is None:
            raise
        raise type(error)(f"panel {panel}: {error}") from None
    if not hasattr(host, "launch"):
        raise BenchError(f"bench {bench.name}: host must return a context to launch on; got {host!r}")
    if not isinstance(budget := getattr(host, "budget", None), Budget):
        found = "has no `budget`" if budget is None else f"has a `budget` that is a {type(budget).__name__}"
        raise BenchError(
            f"the host of bench {bench.name} ({type(host).__name__}) {found}: begin with `budget = Budget()` "
            "(from kernbench.safety.budget), which the runner changes"
        )
    return p, cast("Host", host), overrides


def _add_views(run: Run, host: "Host", watch: "_Watch", comparing: Intermediates | None) -> None:
    """Add further views: time spent outside of kernels, and the first wrong value."""
    if watch.outside > host.budget.seconds:
        run.views["outside_seconds"] = round(watch.outside, 3)
    if comparing is not None:
        run.views["first_wrong"] = comparing.view()


def _is_judged(run: Run, host: "Host") -> bool:
    """Whether the golden is called: the launch returned, all of it was run, and it has outputs or should have."""
    if "part" in run.views:
        return False
    return run.status is Status.FINISHED and (bool(run.outputs) or not (host.shapes_only or run.findings))


def _values(bench: Bench, p: object) -> dict[str, object]:
    """The parameters' values by name."""
    return {d.name: getattr(p, d.name) for d in parameters.describe(bench.parameters)}


def _set_host(
    bench: Bench,
    p: object,
    host: "Host",
    schedule: str | int | None,
    budget: Budget | Mapping[str, object] | None,
    stop: Stopper | None,
) -> None:
    """Set the host's options and stopper to those of the call."""
    if schedule is not None:
        host.schedule = schedule
    _set_budget(bench, p, host, budget)
    host.stop = stop


def _set_target(p: object, host: "Host", timed: bool, exact: bool, blocks: str | None) -> None:
    """Prepare the target for timing, for the hardware's own bits, and for a part of the work."""
    if blocks is not None:
        target_of(p).run_part(host, blocks)
    if timed:
        target_of(p).record_for_time(host)
    if exact:
        target_of(p).compute_exactly(host)


def _set_budget(bench: Bench, p: object, host: "Host", budget: Budget | Mapping[str, object] | None) -> None:
    """Set the host's budget, and the bench's limit, which the default budget follows."""
    if isinstance(budget, Budget):
        host.budget = budget
    elif budget is not None:
        changed: dict[str, Any] = {**budget, **({"source": GIVEN} if "steps" in budget else {})}
        host.budget = replace(host.budget, **changed)
    if bench.limits is not None and host.budget.source == FOLLOWS_WORK:
        host.limit_ps = max(limits_of(bench, p, host.machine).values(), default=None)


def parameters_of(
    bench: Bench, panel: str | None = None, settings: Mapping[str, object] | None = None, size: str | None = None
) -> Any:
    """The parameters that `run_bench` would run with."""
    chosen, _ = split_settings({**_panel(bench, panel), **_size(bench, panel, size), **(settings or {})})
    return parameters.make(bench.parameters, chosen)


def variants_of(
    bench: Bench, panel: str | None = None, settings: Mapping[str, object] | None = None, size: str | None = None
) -> dict[str, Variant]:
    """Other ways to solve the problem that `run_bench` would run, by name; empty if the bench has none."""
    if bench.variants is None:
        return {}
    found: object = call(bench, "variants", bench.variants, parameters_of(bench, panel, settings, size))
    if not isinstance(found, Mapping) or not all(isinstance(way, Variant) for way in found.values()):
        raise BenchError(f"bench {bench.name}: variants must return name -> Variant; got {found!r}")
    return {str(name): way for name, way in found.items()}


def limit_of(
    bench: Bench, panel: str | None = None, settings: Mapping[str, object] | None = None, size: str | None = None
) -> int:
    """Picoseconds that no schedule of what `run_bench` would run can beat, by the bench's limits; 0 without them."""
    if bench.limits is None:
        return 0
    chosen, changes = split_settings({**_panel(bench, panel), **_size(bench, panel, size), **(settings or {})})
    p, host, _ = _made(bench, panel, chosen, changes)
    return max(limits_of(bench, p, host.machine).values(), default=0)


def _launched(bench: Bench, p: object, inputs: object, host: "Host", stop: Stopper | None) -> Run:
    """The result of the bench's launch; after a stopped launch its code may fail."""
    if stop is not None:
        host.launch = _halting(host.launch, stop)
    try:
        run = call(bench, "launch", bench.launch, p, inputs, torch=host)
    except StoppedError:
        return host.launches[-1]
    except BenchError:
        if stop is None or stop.met is None:
            raise
        return Run({}, [], (), Status.STOPPED)
    if not isinstance(run, Run):
        raise BenchError(f"bench {bench.name}: launch must return the Run of torch.launch; got {type(run).__name__}")
    return run


class _Watch:
    """Seconds since it was made that were not spent in launches: budgets stop kernels only, not the code around
    them.
    """

    def __init__(self, host: "Host"):
        self._begin, self._inside, self._launch = perf_counter(), 0.0, host.launch
        # kernels that were launched
        self.kernels: list[object] = []
        host.launch = self._timed

    def _timed(self, *args: object, **kwargs: object) -> Run:
        begin = perf_counter()
        self.kernels.append(args[0] if args else None)
        try:
            run: Run = self._launch(*args, **kwargs)
            return run
        finally:
            self._inside += perf_counter() - begin

    @property
    def outside(self) -> float:
        """Seconds outside launches until now."""
        return perf_counter() - self._begin - self._inside


def _halting(launch: Callable[..., Run], stop: Stopper) -> Callable[..., Run]:
    """`launch`, but after the run was stopped inside a kernel nothing more is launched: later launches would read what
    the stopped kernel has not written.
    """

    def unless_stopped(*args: object, **kwargs: object) -> Run:
        if stop.met is not None:
            raise StoppedError
        return launch(*args, **kwargs)

    return unless_stopped


def _intermediates(bench: Bench, host: "Host", p: object, inputs: object) -> Intermediates:
    """The comparison of a run's checkpoints."""
    if bench.intermediates is None:
        raise BenchError(
            f"bench {bench.name} has no intermediates: give it a function intermediates(p, inputs) -> name -> array"
            " (docs/looking-inside.md has an example)"
        )
    wanted = call(bench, "intermediates", bench.intermediates, p, inputs)
    comparing = Intermediates(bench.name, wanted)
    host.checkpoints = comparing.take
    return comparing


def _acknowledged(run: Run, launches: list[Run], baseline: list[Entry] | None, strict: bool) -> Run:
    """The run of all launches of a bench, without acknowledged findings."""
    for one in (run, *launches) if strict else ():
        one.strict()
    acknowledge(run, baseline)
    if len(launches) < 2:
        return run
    for launch in launches:
        launch.views = {name: view for name, view in launch.views.items() if name != "acknowledged"}
        acknowledge(launch, baseline)
    return joined(run, launches)


def _timing(host: Any, timed: bool, drawn: bool, sensitivity: bool) -> Timing:
    def retime(one: Run) -> Run:
        target = registry.of_run(one)
        again = target.retime_with_changes if sensitivity else target.retime
        return check_timed(again(one, host.machine, drawn))

    return Timing(retime, timed)


def _timed(bench: Bench, p: object, timed: Run, host: Any) -> Run:
    """Add the bench's limits and repeats to the time."""
    if bench.repeats is not None and "time_ps" in timed.metrics:
        timed.metrics["repeats"] = {"count": bench.repeats.count, "of": bench.repeats.of}
    limits = limits_of(bench, p, host.machine) if "time_ps" in timed.metrics else {}
    if limits:
        binding = max(limits, key=lambda name: limits[name])
        ratio = timed.metrics["time_ps"] / limits[binding] if limits[binding] else None
        timed.metrics |= {"limits_ps": limits, "limit": binding, "limit_ratio": ratio}
    return timed


def _panel(bench: Bench, panel: str | None) -> Mapping[str, object]:
    if panel is None:
        return {}
    if panel not in bench.panels:
        names = bench.panels or ["none: this bench has no panels"]
        raise BenchError(unknown(f"panel of {bench.name}", panel, names))
    return bench.panels[panel]


def _size(bench: Bench, panel: str | None, size: str | None) -> Mapping[str, object]:
    if size is None:
        return {}
    if size not in bench.sizes:
        names = bench.sizes or ["none: this bench has one size"]
        raise BenchError(unknown(f"size of {bench.name}", size, names))
    return bench.sizes[size].settings.get(panel or "", {})
