"""Tests of the plain code of the PTX emulator: some tests run a second time, with every fast path off.

The fast paths are those of `kernbench.ptx.emulator.fast_paths`. Of the tests of `PLACES` a fixed sample has a
twin `NAME[plain]`, which runs after it; with `--full` all have. `pytest --plain FILE` runs the tests of a file in this
way only. A test with the mark `fast_paths` is about fast paths themselves, and has no twin.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest
from tests import sampled

from kernbench.ptx.emulator.fast_paths import NO, VARIABLE

# folders and files of tests whose launches run on the emulator
PLACES = ("ptx/emulator", "ptx/recording", "ptx/reference", "ptx/numerics", "ptx/triton", "kernels")
# so many tests share one twin; 1 with --full
_SHARE = 22
TWIN = "plain"
_ROOT = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--plain", action="store_true", help="run with every fast path of the PTX emulator off")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop(VARIABLE, None)
    if config.getoption("--plain"):
        os.environ[VARIABLE] = NO


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the twins; without any where single tests are named, or all run plain anyway."""
    if config.getoption("--plain"):
        about = [item for item in items if item.get_closest_marker("fast_paths")]
        config.hook.pytest_deselected(items=about)
        items[:] = [item for item in items if item not in set(about)]
    elif not any("::" in name for name in config.args):
        items[:] = [one for item in items for one in ((item, twin(item)) if has_twin(item) else (item,))]


def has_twin(item: pytest.Item) -> bool:
    """Whether a test runs a second time."""
    where = item.path.relative_to(_ROOT).as_posix() if item.path.is_relative_to(_ROOT) else ""
    if not isinstance(item, pytest.Function) or not where.startswith(PLACES) or item.get_closest_marker("fast_paths"):
        return False
    return sampled.full() or crc32(f"{where}::{item.name}".encode()) % _SHARE == 0


def twin(item: pytest.Item) -> pytest.Function:
    """The same test under another name, by which it is recognised."""
    assert isinstance(item, pytest.Function)
    more = {"callspec": item.callspec} if hasattr(item, "callspec") else {}
    made: pytest.Function = pytest.Function.from_parent(
        item.parent,
        name=f"{item.name}[{TWIN}]",
        originalname=item.originalname,
        callobj=item.obj,
        fixtureinfo=item._fixtureinfo,
        **more,
    )
    made.own_markers[:] = item.own_markers
    made.keywords.update({mark.name: mark for mark in item.own_markers})
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A twin runs with every fast path off, its fixtures included."""
    if not item.name.endswith(f"[{TWIN}]"):
        return (yield)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = NO
    try:
        return (yield)
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
