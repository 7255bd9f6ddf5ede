"""Requests of the driver library, and the driver's error codes; the C source has the same numbers."""

from dataclasses import dataclass
from enum import IntEnum


class Request(IntEnum):
    """The kind of a request; `native/driver.h` has the same list."""

    HELLO = 1
    ALLOCATE = 2
    FREE = 3
    RANGE = 4
    COPY = 5
    SET = 6
    USAGE = 7
    LOAD = 8
    UNLOAD = 9
    KERNEL = 10
    KERNEL_NAMES = 11
    VARIABLE = 12
    LAUNCH = 13
    OCCUPANCY = 14
    TENSOR_MAP = 15
    LIMIT = 16
    REGISTER = 17
    UNREGISTER = 18
    REFUSED = 19
    ERROR_SEEN = 20
    TIMED = 21
    CALLER = 22
    RESET = 23
    TOUCHED = 24


class Result(IntEnum):
    """Error codes of the driver API that the emulator returns."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    DEINITIALIZED = 4
    INVALID_DEVICE_FUNCTION = 98
    INVALID_IMAGE = 200
    NO_BINARY_FOR_GPU = 209
    INVALID_PTX = 218
    INVALID_HANDLE = 400
    NOT_FOUND = 500
    LAUNCH_TIMEOUT = 702
    ASSERT = 710
    HOST_MEMORY_ALREADY_REGISTERED = 712
    HOST_MEMORY_NOT_REGISTERED = 713
    LAUNCH_FAILED = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    NOT_SUPPORTED = 801
    UNKNOWN = 999


MOST_WORDS = 192


@dataclass(frozen=True)
class Answer:
    """An error code, numbers and bytes; for an error the bytes are its message."""

    result: Result = Result.SUCCESS
    words: tuple[int, ...] = ()
    data: bytes = b""


class RefusedError(Exception):
    """A request that gets an error code and a message, which is shown to the user."""

    def __init__(self, result: Result, message: str = ""):
        super().__init__(message)
        self.result = result


class FaultyCallError(RefusedError):
    """A memory call that a GPU refuses as well.

    If the program does not ask for the error, it becomes a finding of `kind`.

    An access of the host itself has no error code that a program could ask for.
    """

    has_code = True

    def __init__(self, kind: str, message: str, hint: str):
        super().__init__(Result.INVALID_VALUE, message)
        self.kind = kind
        self.hint = hint


class HostAccessError(FaultyCallError):
    """A host access to device-only memory: it ends the program."""

    has_code = False
