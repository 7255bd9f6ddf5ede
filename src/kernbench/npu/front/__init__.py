"""Folders of npu kernels as benches (`kernbench run --kernels`).

The front of a target may import what commands import (benches, reports, the console); nothing imports it: the registry
names its modules.
"""
