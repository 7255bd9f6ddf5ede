"""The test that a program is running."""

import os
import sys
from types import FrameType

# the environment variable in which pytest names it
TEST = "PYTEST_CURRENT_TEST"


def running_test() -> str:
    """The test of pytest or unittest that is running; empty if there is none."""
    if named := os.environ.get(TEST, ""):
        # with its phase in brackets
        return named.rpartition(" (")[0] or named
    unittest = sys.modules.get("unittest.case")
    frame: FrameType | None = sys._getframe(1)
    while unittest is not None and frame is not None:
        held = frame.f_locals.get("self") if frame.f_code.co_argcount else None
        if isinstance(held, unittest.TestCase):
            return str(held.id())
        frame = frame.f_back
    return ""
