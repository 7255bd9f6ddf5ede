"""The pytest plugin: `kernbench_run` runs a bench (`@pytest.mark.kernbench` says which), `kernbench_ptx` keeps PTX.

Nothing of kernbench is imported before a test asks for it.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_MARK = 'kernbench(bench, panel=None, settings=None, **options): the bench that "kernbench_run" runs, and how'


def pytest_addoption(parser: pytest.Parser) -> None:
    """--update-ptx, --kernbench-seed and --kernbench-schedule."""
    group = parser.getgroup("kernbench", "attention kernels")
    group.addoption("--update-ptx", action="store_true", help="write golden PTX files instead of comparing with them")
    group.addoption("--kernbench-seed", type=int, default=None, help="seed of the inputs of benches")
    group.addoption("--kernbench-schedule", default=None, help="canonical, reversed or a seed: order of programs")


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", _MARK)


@pytest.fixture
def kernbench_run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Run a bench: `kernbench_run("my_ring.py", panel=None, settings={...}, timed=True)` gives the Run.

    Files are found beside the test. What the mark says comes first, what the call says over it; options are those of
    `kernbench.bench.run_bench`.
    """
    mark = request.node.get_closest_marker("kernbench")
    given: dict[str, Any] = dict(mark.kwargs) if mark is not None else {}
    if mark is not None and mark.args:
        given["bench"] = mark.args[0]
        if len(mark.args) > 1:
            given["panel"] = mark.args[1]
    folder, config = Path(request.node.path).parent, request.config

    def run(bench: Any = None, panel: str | None = None, settings: Any = None, **options: Any) -> Any:
        return _run(folder, config, given, bench, panel, settings, options)

    return run


def _run(
    folder: Path, config: pytest.Config, given: dict[str, Any], bench: Any, panel: Any, settings: Any, options: Any
) -> Any:
    from kernbench.bench import Bench, find, run_bench
    from kernbench.common.errors import unknown

    merged = {**given, **options}
    chosen = bench if bench is not None else merged.pop("bench", None)
    if chosen is None:
        raise pytest.UsageError('which bench? Name it: kernbench_run("my_ring.py"), or @pytest.mark.kernbench(...)')
    merged.pop("bench", None)
    panel = panel if panel is not None else merged.pop("panel", None)
    merged.pop("panel", None)
    values = {**merged.pop("settings", {}), **(settings or {})}
    for option in ("seed", "schedule"):
        said = config.getoption(f"--kernbench-{option}")
        if said is not None:
            merged[option] = int(said) if str(said).isdecimal() else said
    if not isinstance(chosen, Bench):
        beside = folder / str(chosen)
        chosen = find(str(beside) if beside.is_file() else str(chosen))
    options = set(inspect.signature(run_bench).parameters) - {"bench"}
    for name in merged:
        if name not in options:
            raise pytest.UsageError(unknown("option of kernbench_run", name, sorted(options | {"bench"})))
    return run_bench(chosen, panel, values, **merged)


@pytest.fixture
def kernbench_ptx(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare PTX with a golden file: `kernbench_ptx(kernel, "decode")` looks at golden/decode.ptx beside the test."""
    folder = Path(request.node.path).parent / "golden"
    update = bool(request.config.getoption("--update-ptx"))

    def compare(kernel: Any, name: str) -> None:
        __tracebackhide__ = True
        from kernbench.testing import assert_ptx

        assert_ptx(kernel, folder / f"{name}.ptx", update)

    return compare
