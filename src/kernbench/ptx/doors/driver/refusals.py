"""Launches and memory calls that the driver refuses, and whether the program noticed.

The same rule applies to both: a program that asks for the error (cudaGetLastError, cudaGetErrorString, cuGetErrorName
and the like) has noticed, and what it does then is its own business. Whether a program only checks the returned code
cannot be observed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernbench.ptx.doors.driver.images.images import remedy
from kernbench.ptx.doors.driver.requests import Answer, FaultyCallError, Result
from kernbench.ptx.doors.identity import KernelIdentity
from kernbench.ptx.doors.records import HOST
from kernbench.ptx.doors.session import Launch, Session
from kernbench.ptx.doors.terms.host_lines import line_of
from kernbench.result.finding import Finding

# these are refused only here, and might run on a GPU: even if the program notices, it is not fine
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
    """The receiver of an error code: a thread, and whether the error is `raised` there, so that it cannot be missed."""

    error: int
    thread: int
    raised: bool


class Refusals:
    """The refused launches and calls of one process, by thread: CUDA keeps the last error for each thread."""

    def __init__(self) -> None:
        self._unseen: dict[int, list[Launch]] = {}
        self._unseen_calls: dict[int, list[int]] = {}
        # findings of calls whose line is not known yet
        self._faults: dict[int, Finding] = {}
        # calls that succeeded, and have no error that a program could ask for
        self._succeeded: set[int] = set()
        # messages already shown: a program may retry again and again
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
        identity: KernelIdentity | None = None,
    ) -> str:
        """Record a refused launch; returns the message for the user, empty if it was shown before."""
        if caller.error == Result.INVALID_DEVICE_FUNCTION and not why:
            why = f"no PTX of the program that runs on {session.arch} has it: {remedy(session.arch)}, for all its files"
        of_gpu = caller.error not in _HERE_ONLY
        reason = why or f"error {caller.error}"
        accepted = of_gpu and caller.raised
        launch = session.refuse(name or _NO_NAME, reason, grid=grid, block=block, identity=identity, accepted=accepted)
        if of_gpu and not accepted:
            self._unseen.setdefault(caller.thread, []).append(launch)
        text = f"'{launch.title}' is refused: {reason}"
        if text in self._said:
            return ""
        self._said.add(text)
        return text

    def seen(self, session: Session, words: Words) -> Answer:
        """A thread has asked for its last error: launches and calls that a GPU refuses as well count as noticed."""
        for launch in self._unseen.pop(words[0], []):
            session.accept_refusal(launch)
        for number in self._unseen_calls.pop(words[0], []):
            session.note({"event": "refusal seen", "number": number, "title": HOST})
        return Answer()

    def fault(self, session: Session, problem: FaultyCallError) -> int:
        """Record a refused memory call; returns its number, by which `called` identifies the caller."""
        hint = f"{problem.hint}; {_UNSEEN}" if problem.has_code else problem.hint
        return self._kept(session, Finding(problem.kind, str(problem), hint=hint))

    def used(self, session: Session, finding: Finding) -> int:
        """Record a copy with a finding that succeeded; returns its number, as `fault` does."""
        number = self._kept(session, finding)
        self._succeeded.add(number)
        return number

    def _kept(self, session: Session, finding: Finding) -> int:
        # the tests of another process are unknown
        number = session.report(finding, test="").number
        self._faults[number] = finding
        return number

    def called(self, session: Session, words: Words, data: bytes) -> Answer:
        """Record the thread of a refused call, and its address in a file of the program (`data`)."""
        number, thread, base, address = words
        if number not in self._succeeded:
            self._unseen_calls.setdefault(thread, []).append(number)
        line = line_of(data.decode(errors="replace"), base, address) if address else None
        found = self._faults.pop(number, None)
        if line is not None and found is not None:
            at_line = replace(found, where=line).to_dict()
            session.note({"event": "host line", "title": HOST, "number": number, "findings": [at_line]})
        return Answer()
