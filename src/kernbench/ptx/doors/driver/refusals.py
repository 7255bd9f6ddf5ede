"""Launches and calls on memory that the driver refuses, and whether the program noticed.

One rule holds for both: whoever asks for the error (cudaGetLastError, cudaGetErrorString, cuGetErrorName and their
like) has noticed, and what it does then is its own affair. Whether a program looks at the code that a call returns, and
no more, cannot be seen from here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernbench.ptx.doors.driver.images.images import remedy
from kernbench.ptx.doors.driver.requests import Answer, FaultyCallError, Result
from kernbench.ptx.doors.records import HOST
from kernbench.ptx.doors.session import Launch, Session
from kernbench.ptx.doors.terms.host_lines import line_of
from kernbench.result.finding import Finding

# what is refused here would run on a GPU, or might: that the program noticed does not make it well
_HERE_ONLY = (
    Result.INVALID_DEVICE_FUNCTION,
    Result.INVALID_IMAGE,
    Result.NO_BINARY_FOR_GPU,
    Result.INVALID_PTX,
    Result.NOT_SUPPORTED,
)
_NO_NAME = "a kernel without a name"
_UNSEEN = (
    "the program has not asked for this error (cudaGetLastError, cudaGetErrorString); whether it looked at the code "
    "that the call returned cannot be seen"
)
Words = Sequence[int]


@dataclass(frozen=True)
class Caller:
    """Who gets an error code: a thread, and whether the program cannot miss it, as it is raised there."""

    error: int
    thread: int
    raised: bool


class Refusals:
    """The refused launches and calls of one process, by thread: CUDA keeps the last error for each thread."""

    def __init__(self) -> None:
        self._unseen: dict[int, list[Launch]] = {}
        self._unseen_calls: dict[int, list[int]] = {}
        self._calls = 0
        # of calls whose line is not known yet
        self._faults: dict[int, Finding] = {}
        # what was said already: a program may try again and again
        self._said: set[str] = set()

    def decline(
        self,
        session: Session,
        caller: Caller,
        name: str,
        why: str,
        *,
        grid: tuple[int, ...] = (),
        block: tuple[int, ...] = (),
    ) -> str:
        """Record a launch that is refused; gives what is to be said to the person, which is said once."""
        if caller.error == Result.INVALID_DEVICE_FUNCTION and not why:
            why = f"no PTX of the program that runs on {session.arch} has it: {remedy(session.arch)}, for all its files"
        of_gpu = caller.error not in _HERE_ONLY
        reason = why or f"error {caller.error}"
        accepted = of_gpu and caller.raised
        launch = session.refuse(name or _NO_NAME, reason, grid=grid, block=block, accepted=accepted)
        if of_gpu and not accepted:
            self._unseen.setdefault(caller.thread, []).append(launch)
        text = f"'{launch.title}' is refused: {reason}"
        if text in self._said:
            return ""
        self._said.add(text)
        return text

    def seen(self, session: Session, words: Words) -> Answer:
        """A thread has asked for its last error: what a GPU would have refused as well is its own affair."""
        for launch in self._unseen.pop(words[0], []):
            session.accept_refusal(launch)
        for number in self._unseen_calls.pop(words[0], []):
            session.note({"event": "refusal seen", "number": number, "title": HOST})
        return Answer()

    def fault(self, session: Session, problem: FaultyCallError) -> int:
        """Record a call on memory that is refused; gives its number, by which `called` says who made it."""
        self._calls += 1
        hint = f"{problem.hint}; {_UNSEEN}" if problem.has_code else problem.hint
        found = self._faults[self._calls] = Finding(problem.kind, str(problem), hint=hint)
        session.note({"event": "host", "title": HOST, "number": self._calls, "findings": [found.to_dict()]})
        return self._calls

    def called(self, session: Session, words: Words, data: bytes) -> Answer:
        """Which thread made a refused call, and at which address of which file (`data`) it is in the program."""
        number, thread, base, address = words
        self._unseen_calls.setdefault(thread, []).append(number)
        line = line_of(data.decode(errors="replace"), base, address) if address else None
        found = self._faults.pop(number, None)
        if line is not None and found is not None:
            at_line = replace(found, where=line).to_dict()
            session.note({"event": "host line", "title": HOST, "number": number, "findings": [at_line]})
        return Answer()
