"""Tests marked `gpu` are skipped, with the reason, where there is no GPU to run on."""

import pytest

from kernbench.ptx.devices.cuda_driver import unavailable


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = unavailable() if marked else ""
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))
