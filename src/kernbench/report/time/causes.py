"""The causes of the gap of a run, with the sentence of its target for each."""

from collections.abc import Mapping

from kernbench.result.run import Run
from kernbench.targets.registry import of_run


def explained(run: Run) -> dict[str, str]:
    """The binding floor and every cause of a run's gap, each with its sentence."""
    gap, bound = run.metrics.get("gap_ps"), run.metrics.get("bound")
    floor = {f"{bound} floor": f"What the work of this kernel takes at least at the peak rate of {bound}."}
    if not isinstance(gap, Mapping):
        return floor
    target = of_run(run)
    return floor | {cause: target.explain(cause) for cause in gap}
