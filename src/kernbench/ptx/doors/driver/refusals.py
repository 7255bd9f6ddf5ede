"""Launches that the driver library refuses before the emulator sees them, and whether the program noticed."""

from collections.abc import Sequence

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


class Refusals:
    """The refused launches of one process, by the thread that launched: CUDA keeps the last error for each thread."""

    def __init__(self) -> None:
        self._unseen: dict[int, list[Launch]] = {}

    def refused(self, session: Session, words: Words, data: bytes) -> Answer:
        """Record a launch that was refused with an error code; `data` has the kernel's name and the reason."""
        error, thread, grid, block = words[0], words[1], words[2:5], words[5:8]
        name, _, why = (part.decode(errors="replace") for part in data.partition(b"\0"))
        if error == Result.INVALID_DEVICE_FUNCTION and not why:
            why = f"no PTX of the program that runs on {session.arch} has it: {remedy(session.arch)}, for all its files"
        launch = session.refuse(name or _NO_NAME, why or f"error {error}", grid=tuple(grid), block=tuple(block))
        if error not in _HERE_ONLY:
            self._unseen.setdefault(thread, []).append(launch)
        return Answer()

    def seen(self, session: Session, words: Words) -> Answer:
        """A thread has asked for its last error: launches that a GPU would have refused as well are its own affair."""
        for launch in self._unseen.pop(words[0], []):
            session.accept_refusal(launch)
        return Answer()
