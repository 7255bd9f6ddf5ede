"""Drawn examples are the same on every run, a busy machine is no failure, and a person's terminal decides nothing."""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from tests import plain, reports, rewriting, sampled
from typer import testing

_PROFILE = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.too_slow]}
# with --full as many examples as are usual; properties that need more or fewer say so
settings.register_profile("kernbench-full", **_PROFILE)
settings.register_profile("kernbench", max_examples=50, **_PROFILE)
settings.load_profile("kernbench")
# drawn examples would depend on the constants of all modules that happen to be imported, which take seconds to read
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants

# the command line is made of its functions once, and not for each command that a test runs
if hasattr(testing, "_get_command"):
    testing._get_command = cache(testing._get_command)

# the threads of a test runner wait for input and hold no lock: a copy of this process is safe, and soon there
if sys.platform == "linux":
    os.environ.setdefault("KERNBENCH_START_METHOD", "fork")

# what is compiled is what is tested, however little a test has for it to do
os.environ["KERNBENCH_COMPILE"] = "always"

# tests run at the same time as each other
os.environ["KERNBENCH_JOBS"] = "1"

# tables and help are as wide as where there is no terminal, and have no colours unless a test asks for them; what
# pytest inside a test prints does not depend on a server for continuous integration, for which pytest cuts no line
os.environ |= {"COLUMNS": "80", "LINES": "25"}
_TERMINAL = ("NO_COLOR", "FORCE_COLOR", "PY_COLORS", "CLICOLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
_SERVER = ("CI", "BUILD_NUMBER", "GITHUB_ACTIONS", "PYTEST_ADDOPTS")
for _name in (*_TERMINAL, *_SERVER):
    os.environ.pop(_name, None)

# copies of a process and collections of all its garbage take the longer the more it has in memory: files that make many
# of them come first of all
SMALL = (
    "safety/test_children.py",
    "sweep/test_failures.py",
    "sweep/test_kills.py",
    "sweep/test_ray.py",
    "sweep/test_refused.py",
    "sweep/test_sweep.py",
    "bench/checking/test_check_isolated.py",
    "bench/checking/test_nodes.py",
    "cli/commands/test_check.py",
    "cli/commands/test_sweep.py",
    "ptx/text/test_keeping.py",
    "safety/processes/test_copies.py",
    "safety/processes/test_workers.py",
    "bench/running/test_judging.py",
    "mesh/test_jobs.py",
    "npu/execution/test_dividing.py",
    "ptx/emulator/engine/test_jobs.py",
    "ptx/emulator/engine/test_jobs_of_benches.py",
    "ptx/emulator/engine/test_ways.py",
)
# then those that take longest, so that no process is left with one of them when the others have nothing to do
LONG = (
    "benches/gqa_attention/test_algorithms.py",
    "kernels/gated_delta_rule/test_forward.py",
    "kernels/prefill/test_sm90.py",
    "ptx/doors/test_exec.py",
    "kernels/decode/test_sm90.py",
    "benches/test_milestone.py",
    "test_tutorials.py",
    "ptx/time/test_engine.py",
    "test_structure.py",
    "ptx/isa/test_isa.py",
    "benches/chunk_output/test_sm100.py",
    "benches/chunk_output/test_sm90.py",
    "ptx/doors/test_bad_programs.py",
    "benches/gqa_attention/test_teams.py",
    "common/test_compiled.py",
    "ptx/reference/test_random_programs.py",
    "npu/test_paged.py",
    "cli/test_cli.py",
    "benches/batched_attention/test_batched_attention.py",
    "cli/processes/test_guard.py",
    "benchmarks/calibration/test_cases.py",
    "ptx/time/test_changes.py",
    "benches/test_gated_delta_rule.py",
    "ptx/time/test_rules.py",
    "ptx/time/test_stores.py",
    "common/native/test_adapter.py",
    "benches/test_native_loops.py",
    "benchmarks/truth/test_points.py",
    "common/test_kept.py",
    "npu/cpp/test_ends.py",
    "ptx/doors/driver/test_attaching.py",
    "ptx/doors/driver/test_cuda_programs.py",
    "targets/test_toy_target.py",
)
_ROOT = Path(__file__).parent


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.register(sampled, "sampled")
    pluginmanager.register(plain, "plain")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--full"):
        settings.load_profile("kernbench-full")
    if not hasattr(config, "workerinput"):
        if config.getoption("numprocesses", None) and not reports.needs_all(config) and not reports.shows_files(config):
            config.pluginmanager.register(reports.Ends(config), "ends")
        return
    if not reports.needs_all(config):
        config.pluginmanager.register(reports, "few_reports")
    number, count = int(config.workerinput["workerid"].removeprefix("gw")), config.workerinput["workercount"]
    config.pluginmanager.register(rewriting.Turns(number, count), "turns")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """pytest-xdist's own but for `--dist loadfile`, as `make test` says."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests import scheduling

    return scheduling.Files(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {_ROOT / name: place for place, name in enumerate((*SMALL, *LONG))}
    assert all(path.exists() for path in order), "the order names a file that is not there any more"
    items.sort(key=lambda item: order.get(item.path, len(order)))


# bytes that a process of the tests may grow by before what no test holds any more is looked for: a launch leaves cycles
# behind, and in them its arrays, which Python's collector, which counts objects, may leave for long
_GROWTH = 128 << 20
# bytes that it may grow by before that is looked for among all objects: what was there the last time mostly stays (what
# is parsed and compiled is kept), and to look through millions of objects takes a second
_GROWTH_OF_ALL = 1 << 30


class _Memory:
    """What this process has in memory, where the system says."""

    def __init__(self) -> None:
        self._allowed = self._now() + _GROWTH
        self._allowed_of_all = self._now() + _GROWTH_OF_ALL

    @staticmethod
    def _now() -> int:
        try:
            return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:
            return 0

    def keep_small(self) -> None:
        if self._now() > self._allowed:
            gc.collect()
            if self._now() > self._allowed_of_all:
                gc.unfreeze()
                gc.collect()
                self._allowed_of_all = self._now() + _GROWTH_OF_ALL
            gc.freeze()
            self._allowed = self._now() + _GROWTH


_MEMORY = _Memory()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    _MEMORY.keep_small()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is made of thousands of tests stays: to look through it again and again spares nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What pytest holds of thousands of tests stays to the end: no collection needs to look through it."""
    # Hypothesis makes a generator the first time, and warns if it does not find what refers to it: what is frozen
    settings(database=None, max_examples=1)(given(st.none())(lambda _: None))()
    gc.collect()
    gc.freeze()


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    """For tests of what Python's garbage collector looks at."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def small_heap() -> None:
    """A full scratch memory looks for cycles; what earlier tests left behind need not be looked through every time."""
    gc.collect()
    gc.freeze()
