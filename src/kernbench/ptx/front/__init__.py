"""The PTX target's commands (`kernbench ptx`, `kernbench exec`, `kernbench cuda`) and the files they read.

A front may import what commands import (benches, reports, the console). Nothing imports it: the registry of targets
names its modules.
"""
