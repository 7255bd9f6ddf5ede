"""Runs a launch until a kernel's line, or the first finding, is reached."""

from collections.abc import Callable

from kernbench.common.errors import BenchError
from kernbench.result.finding import Finding
from kernbench.result.run import Run
from kernbench.safety.stopping import StopAt, Stopper, stop_at


def run_until(text: str, launched: Callable[[Stopper], Run], strict: bool = False) -> Run:
    """The result of `launched` with a stopper for `text`; if it was never reached, an error that names the closest
    match.

    Formal findings stop the run only with `strict`.

    Some checks examine a whole run when it is over. Their findings have no moment at which to stop, so the run is
    repeated, and stops at the line the finding names, the first time a program reaches it.
    """
    stopper = Stopper(stop_at(text), strict)
    run = launched(stopper)
    if stopper.met is None and stopper.at_finding and run.findings:
        finding = run.findings[0]
        stopper = Stopper(_location_of(finding))
        run = launched(stopper)
        if stopper.met is not None:
            run.views["stopped"]["why"] = (
                f"{finding.kind}, found when the run was over: {finding.message} "
                "(this is the first time a program reaches the line it names)"
            )
            run.findings = run.findings or [finding]
    if stopper.met is None:
        raise BenchError(stopper.missed())
    return run


def _location_of(finding: Finding) -> StopAt:
    if finding.where is None or not finding.where.line:
        raise BenchError(f"{finding.kind} is of the whole run and names no line to stop at: {finding.message}")
    return StopAt(finding.where.file, finding.where.line)
