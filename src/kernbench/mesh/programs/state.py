"""The state of a program of a launch."""

from enum import StrEnum


class State(StrEnum):
    """Where a program stands; the words complete the sentence "rank 3 ..."."""

    READY = "is ready"
    WAITING = "waits"
    RETURNED = "has returned"
    FAILED = "stopped with an error"
    STOPPED = "was stopped"
