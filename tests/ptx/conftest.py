"""Tests marked `gpu` need a GPU: where there is none, one of each file is skipped with the reason, for all of them."""

import pytest

from kernbench.ptx.devices.cuda_driver import unavailable


def pytest_collection_modifyitems(config, items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = unavailable() if marked else ""
    if not reason:
        return
    # there are more than a thousand, and to report on each of them takes seconds
    first = {item.path: item for item in reversed(marked)}
    for item in first.values():
        item.add_marker(pytest.mark.skip(reason=reason))
    left_out = {id(item) for item in marked} - {id(item) for item in first.values()}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left_out])
    items[:] = [item for item in items if id(item) not in left_out]
