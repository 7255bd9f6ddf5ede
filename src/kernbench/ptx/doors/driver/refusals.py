"""Launches that the driver refuses before they begin, and whether the program noticed."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernbench.ptx.doors.driver.images.images import remedy
from kernbench.ptx.doors.driver.requests import Answer, Result
from kernbench.ptx.doors.session import Launch, Session

# what is refused here would run on a GPU, or might: that the program noticed does not make it well
_HERE_ONLY = (
    Result.INVALID_DEVICE_FUNCTION,
    Result.INVALID_IMAGE,
    Result.NO_BINARY_FOR_GPU,
    Result.INVALID_PTX,
    Result.NOT_SUPPORTED,
)
_NO_NAME = "a kernel without a name"
Words = Sequence[int]


@dataclass(frozen=True)
class Caller:
    """Who gets an error code: a thread, and whether the program cannot miss it, as it is raised there."""

    error: int
    thread: int
    raised: bool


class Refusals:
    """The refused launches of one process, by the thread that launched: CUDA keeps the last error for each thread."""

    def __init__(self) -> None:
        self._unseen: dict[int, list[Launch]] = {}
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
        """A thread has asked for its last error: launches that a GPU would have refused as well are its own affair."""
        for launch in self._unseen.pop(words[0], []):
            session.accept_refusal(launch)
        return Answer()
