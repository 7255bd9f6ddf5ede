"""A recorded run with its time and what would save some of it."""

from dataclasses import replace

from kernbench.ptx.advice.advice import advise
from kernbench.ptx.machine import Gpu
from kernbench.ptx.time.changes import Again
from kernbench.ptx.time.presentation import timed
from kernbench.ptx.time.retiming import LaunchTiming, time_recording
from kernbench.result.reading import Data
from kernbench.result.run import Run

_NOT_TIMED_AGAIN = "a large launch: --sensitivity times it again for what changes of the kernel would save"


def retime(run: Run, gpu: Gpu, drawn: bool = True, sensitivity: bool = False) -> Run:
    """A recorded run that is safe and not known to be wrong, with its time on `gpu`; unless `drawn`, the figures only.

    With `sensitivity` also what higher rates would save, which small launches include by default.
    """
    return explained(run, time_recording(run.recording, gpu), gpu, drawn, sensitivity)


def explained(run: Run, timing: LaunchTiming, gpu: Gpu, drawn: bool = True, sensitivity: bool = False) -> Run:
    """The run with a time that is known: its metrics, and if `drawn` its timeline, lines and advice."""
    again = Again(timing.recording, timing.streams, gpu, timing.time)
    shown = timed(run, again, drawn)
    if not drawn:
        return shown
    return replace(shown, metrics={**shown.metrics, **saved(again, sensitivity or again.small)})


def saved(again: Again, time_again: bool) -> Data:
    """Advice, unless even a sample of the launch is too large to be timed unasked; with `time_again` also changes."""
    if not time_again:
        return {"advice": advise(again)} if again.sampled_soon else {"advice": [], "advice_note": _NOT_TIMED_AGAIN}
    one_more = again.one_more_cta()
    changes = [] if one_more is None else [{"what": one_more.what, "needs": one_more.needs, "saves": one_more.saves}]
    return {"sensitivity": again.rates(), "changes": changes, "advice": advise(again)}
