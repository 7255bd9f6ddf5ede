"""A lost GPU: after a failed assertion, a trap or a deadlock every later call fails, as in CUDA.

The launch itself succeeds, since launches are asynchronous on a GPU; the error appears at the next call, and is sticky.
"""

import sys

from kernbench.result.run import Run, Status

_ASSERT = "device-side assert triggered"
_TRAP = "unspecified launch failure"
_TIMEOUT = "the launch timed out and was terminated"


def stop_of(run: Run) -> str:
    """The sticky CUDA error of a launch, in CUDA's words; empty if the program goes on.

    A launch that only exceeded its time limit here would have ended on a GPU.
    """
    if run.status is Status.DEADLOCKED:
        return _TIMEOUT
    traps = [finding.message for finding in run.findings if finding.kind == "trap"]
    if not traps:
        return ""
    return _ASSERT if "assertion '" in traps[0] else _TRAP


def cuda_error(text: str) -> RuntimeError:
    """The exception that torch raises for a CUDA error; a `RuntimeError` without torch, or with an old one."""
    kind: type[RuntimeError] = getattr(sys.modules.get("torch"), "AcceleratorError", RuntimeError)
    return kind(text)


class Loss:
    """Whether the GPU of a session is lost, and by which launch."""

    def __init__(self, keep_going: bool):
        self._keep_going = keep_going
        self._why = ""

    def note(self, title: str, number: int, run: Run | None) -> None:
        """A launch has ended, and may have lost the GPU."""
        stop = stop_of(run) if run is not None and not self._keep_going else ""
        if stop and not self._why:
            self._why = (
                f"CUDA error: {stop}\nlaunch {number}, '{title}', ended so, and as on a GPU every later call fails; "
                "what was found is in the verdict. --keep-going lets the program go on"
            )

    def forget(self) -> None:
        """Make the GPU available again, for example for the next test in a process."""
        self._why = ""

    def __bool__(self) -> bool:
        return bool(self._why)

    def check(self) -> None:
        """Raise the sticky error if the GPU is lost."""
        if self._why:
            raise cuda_error(self._why)
