"""The pytest plugin: `kernbench_run` runs a bench (`@pytest.mark.kernbench` says which), `kernbench_ptx` keeps PTX.

With `--kernbench sm_90a` all tests run on an emulated GPU, and a test whose launches have findings fails; with
`--kernbench-time` it also says where the time of kernels would go;
`kernbench_session` gives a test such a GPU by itself. Nothing of kernbench is imported before a test asks for it.
"""

import argparse
import contextlib
import inspect
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from math import inf, prod
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest._io import TerminalWriter

    from kernbench.result.run import Run

# the architecture of a GPU for which nobody says one
_ARCH = "sm_90a"
# the property of a test that holds a note
_FORMAL = "kernbench_formal"
# the open context of the emulated GPU, its session, the folder of its records where times are asked for, and of a test
# how many launches and calls of the host with findings there were before
_EMULATED: pytest.StashKey[Any] = pytest.StashKey()
_RECORDS: pytest.StashKey[Path] = pytest.StashKey()
_SESSION: pytest.StashKey[Any] = pytest.StashKey()
_SEEN: pytest.StashKey[tuple[int, int]] = pytest.StashKey()
_MARK = 'kernbench(bench, panel=None, settings=None, **options): the bench that "kernbench_run" runs, and how'


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """--update-ptx, --kernbench-seed, --kernbench-schedule and --kernbench-strict."""
    _import_as_it_is(pluginmanager)
    group = parser.getgroup("kernbench", "attention kernels")
    group.addoption("--update-ptx", action="store_true", help="write golden PTX files instead of comparing with them")
    group.addoption("--kernbench-seed", type=int, default=None, help="seed of the inputs of benches")
    group.addoption("--kernbench-schedule", default=None, help="canonical, reversed or a seed: order of programs")
    group.addoption("--kernbench-strict", action="store_true", help="formal findings of benches count as faults")
    group.addoption(
        "--kernbench", default=None, metavar="SM", help="run all tests on an emulated GPU (sm_90a, say), checked"
    )
    group.addoption(
        "--kernbench-time", action="store_true", help="predict how long launches take on a GPU, and say what of"
    )
    group.addoption(
        "--kernbench-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the emulated GPU: only=softmax*, skip=..., first=3, max_seconds=60, sms=4",
    )
    group.addoption(
        "--kernbench-cases",
        type=_at_least_one,
        default=None,
        metavar="N",
        help="of each parametrised test run the N cases with the smallest numbers, and leave the others out",
    )
    group.addoption(
        "--kernbench-size",
        type=float,
        default=inf,
        metavar="N",
        help="leave out cases of parametrised tests whose whole numbers multiply to more than N (1e6, say)",
    )
    group.addoption(
        "--kernbench-seconds",
        type=float,
        default=None,
        metavar="S",
        help="a test that takes longer than S seconds fails, and the next one runs",
    )


def _import_as_it_is(pluginmanager: pytest.PytestPluginManager) -> None:
    """Import the modules of kernbench as everybody else does.

    Pytest would rewrite the asserts of a whole package that has a plugin, hundreds of files here, which takes many
    seconds where they are not kept yet; and no test asks what they say.
    """
    hook = pluginmanager.rewrite_hook
    for name in ("_must_rewrite", "_marked_for_rewrite_cache"):
        marked = getattr(hook, name, None)
        if isinstance(marked, set):
            marked.discard("kernbench")
        elif isinstance(marked, dict):
            marked.clear()


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("one case of each test at least")
    return number


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of each parametrised test, the cases that --kernbench-cases and --kernbench-size leave."""
    wanted, largest = config.getoption("--kernbench-cases"), config.getoption("--kernbench-size")
    if wanted is None and largest == inf:
        return
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if _size_of(item) <= largest:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {id(item) for cases in tests.values() for item in _chosen(cases, wanted)}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = [item for item in items if id(item) in kept]


def _chosen(cases: list[pytest.Item], wanted: int | None) -> list[pytest.Item]:
    """So many of a test's cases, in their order: the smallest, and of equally small ones the first, the last, and some
    in between. Those that are marked to be skipped are chosen only where there are no others.
    """
    able = [case for case in cases if not any(map(_is_skipped, case.iter_markers("skipif")))] or cases
    if wanted is None:
        return cases
    if wanted >= len(able):
        return able
    sizes = [_size_of(case) for case in able]
    limit = sorted(sizes)[wanted - 1]
    smaller = [number for number, size in enumerate(sizes) if size < limit]
    equal = [number for number, size in enumerate(sizes) if size == limit]
    left = wanted - len(smaller)
    step = (len(equal) - 1) / max(left - 1, 1)
    return [able[number] for number in sorted({*smaller, *(equal[round(at * step)] for at in range(left))})]


def _size_of(case: pytest.Item) -> int:
    """How large a case is: the product of the whole numbers among its parameters, which mostly are its shape."""
    spec = getattr(case, "callspec", None)
    return prod(_numbers(spec.params.values())) if spec is not None else 1


def _numbers(values: Iterable[object]) -> Iterator[int]:
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _numbers(value)


def _is_skipped(mark: pytest.Mark) -> bool:
    condition = mark.args[0] if mark.args else mark.kwargs.get("condition")
    return condition is True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run a test for as long as --kernbench-seconds lets it."""
    seconds = item.config.getoption("--kernbench-seconds")
    if seconds is None or not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        return (yield)

    class TimeLimit(BaseException):
        """The test is over: no error that one expects."""

    def over(number: int, frame: object) -> None:
        raise TimeLimit(f"--kernbench-seconds {seconds:g}")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return (yield)
    except TimeLimit:
        # without the frames in which it was, which may be of compiled code and have no lines
        pytest.fail(f"the test took longer than {seconds:g} seconds (--kernbench-seconds)", pytrace=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """The emulated GPU is there before conftest files are imported: they may ask what the machine has."""
    # wrong options are reported when all is configured
    with contextlib.suppress(pytest.UsageError):
        _open_gpu(early_config, early_config.known_args_namespace)


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known, and the emulated GPU where this plugin was loaded too late to do it before."""
    config.addinivalue_line("markers", _MARK)
    _open_gpu(config, config.option)


def _open_gpu(config: pytest.Config, given: argparse.Namespace) -> None:
    """Where an emulated GPU is asked for, tests and what they import find it from now on."""
    arch = getattr(given, "kernbench", None)
    if arch and config.stash.get(_EMULATED, None) is None:
        folder = _folder_of_times(given)
        if folder is not None:
            config.stash[_RECORDS] = folder
        opened = _emulated(given, arch, folder)
        config.stash[_SESSION] = opened.__enter__()
        config.stash[_EMULATED] = opened


def pytest_unconfigure(config: pytest.Config) -> None:
    """The emulated GPU goes away."""
    opened = config.stash.get(_EMULATED, None)
    if opened is not None:
        opened.__exit__(None, None, None)
    if _RECORDS in config.stash:
        shutil.rmtree(config.stash[_RECORDS], ignore_errors=True)


def _folder_of_times(given: argparse.Namespace) -> Path | None:
    """A folder for the explanations of times; None if none are asked for, or `kernbench exec` has one."""
    from kernbench.ptx.doors.opening.environment import FOLDER

    asked = given.kernbench_time and FOLDER not in os.environ
    return Path(tempfile.mkdtemp(prefix="kernbench-pytest-")) if asked else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, object, object]:
    """A test that passed, and whose launches have findings, failed."""
    report: Any = yield
    session = item.config.stash.get(_SESSION, None)
    if session is None:
        return report
    launches, calls = item.stash.get(_SEEN, (0, 0))
    fresh = [*session.launches[launches:], *session.calls[calls:]]
    item.stash[_SEEN] = len(session.launches), len(session.calls)
    bad = [one for one in fresh if not one.ok]
    if bad:
        from kernbench.ptx.doors.causes import describe, summary_of

        # of a test that failed by itself, what was found stands beside its own reason
        if report.passed:
            report.outcome, report.longrepr = "failed", _Verdict(describe(bad), summary_of(bad))
        else:
            report.sections.append((f"kernbench: {session.arch}", describe(bad)))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What is launched from now on is this test's."""
    session = item.config.stash.get(_SESSION, None)
    if session is not None:
        item.stash[_SEEN] = len(session.launches), len(session.calls)
        # a test whose launch took the GPU with it fails alone
        from kernbench.ptx.doors.driver.local import restore

        session.loss.forget()
        restore()


def _emulated(given: argparse.Namespace, arch: str, folder: Path | None = None) -> Any:
    """The context of an emulated GPU with the options of the command line."""
    from kernbench.common.errors import MisuseError
    from kernbench.ptx.doors.opening.emulated import emulated
    from kernbench.ptx.doors.options import options_from, parse_option

    options: dict[str, Any] = {"strict": bool(given.kernbench_strict), "time": bool(given.kernbench_time)}
    schedule = _from_options(given).get("schedule")
    if schedule is not None:
        options["schedule"] = schedule
    try:
        for option in given.kernbench_option:
            options.update(parse_option(option))
        options_from({"arch": arch, **options})
        return emulated(arch, folder=folder, keep_runs=False, **options)
    except MisuseError as problem:
        raise pytest.UsageError(str(problem)) from None


class _Verdict:
    """Why a test failed, as pytest shows it: whole in its section, and in few words in the line of its summary."""

    def __init__(self, text: str, summary: str):
        self._text = text
        self.reprcrash = SimpleNamespace(message=summary)

    def __str__(self) -> str:
        return self._text

    def toterminal(self, terminal: "TerminalWriter") -> None:
        """Write the whole."""
        terminal.line(self._text)


@pytest.fixture
def kernbench_session(request: pytest.FixtureRequest) -> Iterator[object]:
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
    with _emulated(request.config.option, arch) as session:
        yield session
        session.assert_safe()


@pytest.fixture
def kernbench_run(request: pytest.FixtureRequest) -> "Callable[..., Run]":
    """Run a bench: `kernbench_run("my_ring.py", panel=None, settings={...}, timed=True)` gives the Run.

    Files are found beside the test. What the mark says comes first, what the call says over it; options are those of
    `kernbench.bench.run_bench`.
    """
    given = _marked(request.node.get_closest_marker("kernbench"))
    from_options = _from_options(request.config.option)
    folder = Path(request.node.path).parent

    def run(bench: object = None, panel: str | None = None, settings: Any = None, **options: object) -> "Run":
        from kernbench.bench import run_bench

        called = {"bench": bench, "panel": panel, "settings": settings}
        merged = {
            **given,
            **{name: value for name, value in called.items() if value is not None},
            **options,
            **from_options,
        }
        merged["settings"] = {**given.get("settings", {}), **(settings or {})}
        _check_options(merged, set(inspect.signature(run_bench).parameters))
        result = run_bench(_found(merged.pop("bench", None), folder), **merged)
        if result.formal:
            request.node.user_properties.append((_FORMAL, _formal_note(result)))
        return result

    return run


def _formal_note(result: "Run") -> str:
    # the report draws tables: imported only where there is something to show
    from kernbench.report import formal_text
    from kernbench.report.text.plain import plain_text

    return plain_text(formal_text(result)).rstrip()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What is formal in the benches of the tests: a note for each, as it makes no test fail; and where time goes."""
    if _RECORDS in config.stash:
        times = list(_times_in(config.stash[_RECORDS], config.stash[_SESSION].arch))
        if times:
            terminalreporter.section("kernbench: predicted times")
        for text in times:
            terminalreporter.write_line(text)
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.stats.get(kind, ())]
    # each phase of a test reports what the phases before it noted
    notes = {(one.nodeid, value) for one in reports for name, value in one.user_properties if name == _FORMAL}
    if notes:
        terminalreporter.section("kernbench: formal findings (--kernbench-strict makes them count)")
    for test, note in sorted(notes):
        terminalreporter.write_line(f"{test}\n{note}")


def _times_in(folder: Path, arch: str) -> Iterator[str]:
    """Where the time of the kernels in a folder of records goes, and why some have none."""
    from kernbench.ptx.doors.summary import read_session
    from kernbench.report.text.plain import plain_text
    from kernbench.report.time.kernels import kernels_text

    kernels = read_session(folder).by_time
    for _, text in kernels_text([(kernel.title, kernel.run(arch)) for kernel in kernels]):
        yield plain_text(text).rstrip()
    yield from (f"{kernel.title}: no time: {kernel.untimed}" for kernel in kernels if kernel.untimed)


def _marked(mark: pytest.Mark | None) -> dict[str, Any]:
    """What the mark says, by name."""
    return {} if mark is None else {**mark.kwargs, **dict(zip(("bench", "panel"), mark.args, strict=False))}


def _from_options(given: argparse.Namespace) -> dict[str, object]:
    """What pytest's command line says."""
    options = {name: getattr(given, f"kernbench_{name}") for name in ("seed", "schedule")}
    strict = {"strict": True} if given.kernbench_strict else {}
    chosen = {
        name: int(value) if str(value).isdecimal() else value for name, value in options.items() if value is not None
    }
    return chosen | strict


def _check_options(given: dict[str, object], known: set[str]) -> None:
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
    # a path that leads nowhere is reported where it was looked for first
    missing = beside.suffix == ".py" and not Path(bench).is_file()
    return find(str(beside) if beside.is_file() or missing else str(bench))


@pytest.fixture
def kernbench_ptx(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare PTX with a golden file: `kernbench_ptx(kernel, "decode")` looks at golden/decode.ptx beside the test."""
    folder = Path(request.node.path).parent / "golden"
    update = bool(request.config.getoption("--update-ptx"))

    def compare(kernel: object, name: str) -> None:
        __tracebackhide__ = True
        from kernbench.testing import assert_ptx

        assert_ptx(kernel, folder / f"{name}.ptx", update)

    return compare
