"""Why a run gets no time, for any target."""

from kernbench.result.run import Run, Status

# findings after which a recording is not a complete program
_UNPAIRED = frozenset(("message-unreceived", "message-mismatch", "missing-wait", "no-neighbour"))


def no_time(run: Run, unrecorded: str) -> str:
    """Why a run gets no time; empty if it gets one. `unrecorded` is the reason if it has no recording.

    A compiler's fault leaves the time: it is that of the code as it is, and the program can do nothing about it.
    """
    acknowledged = {row["finding"]["kind"] for row in run.views.get("acknowledged", [])} & _UNPAIRED
    if run.status is not Status.FINISHED:
        return f"the run {run.status}"
    if "part" in run.views:
        return "only a part of its blocks was run"
    if run.own_findings:
        return "it is not safe"
    if run.right is False:
        return "its result is wrong"
    if acknowledged:
        return (
            f"its messages do not pair up: {', '.join(sorted(acknowledged))} is acknowledged, and nothing can time it"
        )
    return unrecorded if run.recording is None else ""
