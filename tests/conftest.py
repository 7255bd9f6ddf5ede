"""Drawn examples are the same on every run, and a busy machine is no failure."""

import os
import sys

from hypothesis import HealthCheck, settings

settings.register_profile("kernbench", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kernbench")

# the threads of a test runner wait for input and hold no lock: a copy of this process is safe, and soon there
if sys.platform == "linux":
    os.environ.setdefault("KERNBENCH_START_METHOD", "fork")
