"""The pytest plugin: `kernbench_run` runs a bench (`@pytest.mark.kernbench` says which), `kernbench_ptx` keeps PTX.

With `--kernbench sm_90a` all tests run on an emulated GPU, and a test whose launches have findings fails;
`kernbench_session` gives a test such a GPU by itself. Nothing of kernbench is imported before a test asks for it.
"""

import inspect
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

# the architecture of a GPU for which nobody says one
_ARCH = "sm_90a"
# the property of a test that holds a note
_FORMAL = "kernbench_formal"
# the open context of the emulated GPU, its session, and of a test how many launches there were before
_EMULATED: pytest.StashKey[Any] = pytest.StashKey()
_SESSION: pytest.StashKey[Any] = pytest.StashKey()
_SEEN: pytest.StashKey[int] = pytest.StashKey()
_MARK = 'kernbench(bench, panel=None, settings=None, **options): the bench that "kernbench_run" runs, and how'


def pytest_addoption(parser: pytest.Parser) -> None:
    """--update-ptx, --kernbench-seed, --kernbench-schedule and --kernbench-strict."""
    group = parser.getgroup("kernbench", "attention kernels")
    group.addoption("--update-ptx", action="store_true", help="write golden PTX files instead of comparing with them")
    group.addoption("--kernbench-seed", type=int, default=None, help="seed of the inputs of benches")
    group.addoption("--kernbench-schedule", default=None, help="canonical, reversed or a seed: order of programs")
    group.addoption("--kernbench-strict", action="store_true", help="formal findings of benches count as faults")
    group.addoption(
        "--kernbench", default=None, metavar="SM", help="run all tests on an emulated GPU (sm_90a, say), checked"
    )
    group.addoption(
        "--kernbench-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the emulated GPU: only=softmax*, skip=..., first=3, max_seconds=60, sms=4",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known; where an emulated GPU is asked for, tests and what they import find it from now on."""
    config.addinivalue_line("markers", _MARK)
    arch = config.getoption("--kernbench")
    if arch:
        config.stash[_EMULATED] = opened = _emulated(config, arch)
        config.stash[_SESSION] = opened.__enter__()


def pytest_unconfigure(config: pytest.Config) -> None:
    """The emulated GPU goes away."""
    opened = config.stash.get(_EMULATED, None)
    if opened is not None:
        opened.__exit__(None, None, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A test that passed, and whose launches have findings, failed."""
    report: Any = yield
    session = item.config.stash.get(_SESSION, None)
    if session is None:
        return report
    seen = item.stash.get(_SEEN, 0)
    fresh = session.launches[seen:]
    item.stash[_SEEN] = len(session.launches)
    bad = [launch for launch in fresh if not launch.ok]
    if bad:
        from kernbench.ptx.doors.session import describe

        report.sections.append((f"kernbench: {session.arch}", describe(bad)))
        if report.passed:
            report.outcome, report.longrepr = "failed", describe(bad)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What is launched from now on is this test's."""
    session = item.config.stash.get(_SESSION, None)
    if session is not None:
        item.stash[_SEEN] = len(session.launches)


def _emulated(config: pytest.Config, arch: str) -> Any:
    """The context of an emulated GPU with the options of the command line."""
    from kernbench.common.errors import MisuseError
    from kernbench.ptx.doors.opening.emulated import emulated
    from kernbench.ptx.doors.options import options_from, parse_option

    options: dict[str, Any] = {"strict": bool(config.getoption("--kernbench-strict"))}
    schedule = _said(config).get("schedule")
    if schedule is not None:
        options["schedule"] = schedule
    try:
        for given in config.getoption("--kernbench-option"):
            options.update(parse_option(given))
        options_from({"arch": arch, **options})
        return emulated(arch, keep_runs=False, **options)
    except MisuseError as problem:
        raise pytest.UsageError(str(problem)) from None


@pytest.fixture
def kernbench_session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An emulated GPU for one test: its session, whose findings fail the test.

    It is the one of `--kernbench` where that is given, otherwise one of the architecture that
    `@pytest.mark.kernbench(arch="sm_100a")` says, or sm_90a. `session.launches`, `session.findings`.
    """
    shared = request.config.stash.get(_SESSION, None)
    if shared is not None:
        yield shared
        return
    mark = request.node.get_closest_marker("kernbench")
    arch = mark.kwargs.get("arch", _ARCH) if mark is not None else _ARCH
    with _emulated(request.config, arch) as session:
        yield session
        session.assert_safe()


@pytest.fixture
def kernbench_run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Run a bench: `kernbench_run("my_ring.py", panel=None, settings={...}, timed=True)` gives the Run.

    Files are found beside the test. What the mark says comes first, what the call says over it; options are those of
    `kernbench.bench.run_bench`.
    """
    given = _marked(request.node.get_closest_marker("kernbench"))
    said = _said(request.config)
    folder = Path(request.node.path).parent

    def run(bench: Any = None, panel: str | None = None, settings: Any = None, **options: Any) -> Any:
        from kernbench.bench import run_bench

        called = {"bench": bench, "panel": panel, "settings": settings}
        merged = {**given, **{name: value for name, value in called.items() if value is not None}, **options, **said}
        merged["settings"] = {**given.get("settings", {}), **(settings or {})}
        _check_options(merged, set(inspect.signature(run_bench).parameters))
        result = run_bench(_found(merged.pop("bench", None), folder), **merged)
        if result.formal:
            request.node.user_properties.append((_FORMAL, _formal_note(result)))
        return result

    return run


def _formal_note(result: Any) -> str:
    # the report draws tables: imported only where there is something to show
    from kernbench.report import formal_text
    from kernbench.report.text.plain import plain_text

    return plain_text(formal_text(result)).rstrip()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What is formal in the benches of the tests: a note for each, as it makes no test fail."""
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.stats.get(kind, ())]
    # each phase of a test reports what the phases before it noted
    notes = {(one.nodeid, value) for one in reports for name, value in one.user_properties if name == _FORMAL}
    if notes:
        terminalreporter.section("kernbench: formal findings (--kernbench-strict makes them count)")
    for test, note in sorted(notes):
        terminalreporter.write_line(f"{test}\n{note}")


def _marked(mark: pytest.Mark | None) -> dict[str, Any]:
    """What the mark says, by name."""
    return {} if mark is None else {**mark.kwargs, **dict(zip(("bench", "panel"), mark.args, strict=False))}


def _said(config: pytest.Config) -> dict[str, Any]:
    """What pytest's command line says."""
    options = {name: config.getoption(f"--kernbench-{name}") for name in ("seed", "schedule")}
    strict = {"strict": True} if config.getoption("--kernbench-strict") else {}
    given = {
        name: int(value) if str(value).isdecimal() else value for name, value in options.items() if value is not None
    }
    return given | strict


def _check_options(given: dict[str, Any], known: set[str]) -> None:
    from kernbench.common.errors import unknown

    for name in given:
        if name not in known:
            raise pytest.UsageError(unknown("option of kernbench_run", name, sorted(known)))


def _found(bench: Any, folder: Path) -> Any:
    """The bench that is meant: itself, a file beside the test, or a name."""
    from kernbench.bench import Bench, find

    if bench is None:
        raise pytest.UsageError('which bench? Name it: kernbench_run("my_ring.py"), or @pytest.mark.kernbench(...)')
    if isinstance(bench, Bench):
        return bench
    beside = folder / str(bench)
    # a path that leads nowhere is told of where it was looked for first
    missing = beside.suffix == ".py" and not Path(bench).is_file()
    return find(str(beside) if beside.is_file() or missing else str(bench))


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
