"""Drawn examples are the same on every run, a busy machine is no failure, and a person's terminal decides nothing."""

import os
import sys

from hypothesis import HealthCheck, settings

settings.register_profile("kernbench", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kernbench")

# the threads of a test runner wait for input and hold no lock: a copy of this process is safe, and soon there
if sys.platform == "linux":
    os.environ.setdefault("KERNBENCH_START_METHOD", "fork")

# tables and help are as wide as where there is no terminal, and have no colours unless a test asks for them
os.environ |= {"COLUMNS": "80", "LINES": "25"}
for _name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(_name, None)
