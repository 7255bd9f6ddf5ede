"""A GPU that is lost to the program: after a failed assertion, a trap or a deadlock every later call fails, as in CUDA.

The launch itself succeeds, since a GPU launches without waiting; the error comes with the next call, and stays.
"""

import sys

from kernbench.result.run import Run, Status

_ASSERT = "device-side assert triggered"
_TRAP = "unspecified launch failure"
_TIMEOUT = "the launch timed out and was terminated"


def stop_of(run: Run) -> str:
    """What CUDA's later calls would say of a launch, in its words; empty where the program goes on.

    A launch that only took longer than was allowed here would have ended on a GPU.
    """
    if run.status is Status.DEADLOCKED:
        return _TIMEOUT
    traps = [finding.message for finding in run.findings if finding.kind == "trap"]
    if not traps:
        return ""
    return _ASSERT if "assertion '" in traps[0] else _TRAP


def cuda_error(text: str) -> RuntimeError:
    """What torch raises for an error of CUDA; where it is not there, or is an old one, a `RuntimeError`."""
    kind: type[RuntimeError] = getattr(sys.modules.get("torch"), "AcceleratorError", RuntimeError)
    return kind(text)


class Loss:
    """Whether the GPU of a session is lost, by which launch."""

    def __init__(self, keep_going: bool):
        self._keep_going = keep_going
        self._why = ""

    def note(self, title: str, number: int, run: Run | None) -> None:
        """A launch has ended: it may have taken the GPU with it."""
        stop = stop_of(run) if run is not None and not self._keep_going else ""
        if stop and not self._why:
            self._why = (
                f"CUDA error: {stop}\nlaunch {number}, '{title}', ended so, and as on a GPU every later call fails; "
                "what was found is in the verdict. --keep-going lets the program go on"
            )

    def forget(self) -> None:
        """Let the GPU be there again, for the next test of a process, say."""
        self._why = ""

    def __bool__(self) -> bool:
        return bool(self._why)

    def check(self) -> None:
        """Raise what CUDA's calls give once the GPU is lost."""
        if self._why:
            raise cuda_error(self._why)
