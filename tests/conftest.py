"""Drawn examples are the same on every run, and a busy machine is no failure."""

from hypothesis import HealthCheck, settings

settings.register_profile("kernbench", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kernbench")
