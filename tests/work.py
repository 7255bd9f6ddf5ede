"""Work counted instead of timed: the same number on a fast machine, a slow one and a busy one."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def work(call: Callable[[], object], *ends: type[BaseException]) -> int:
    """How many calls and returns, of C functions too, `call()` makes; it may end with one of `ends`.

    Growth shows in it: a program that does twice as much for twice the input counts twice as much.
    """
    count = 0

    def profile(frame: FrameType, event: str, value: Any) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    except ends:
        pass
    finally:
        sys.setprofile(before)
    return count
