"""Large sets of cases: `make test` runs a fixed sample of each, `make test-full` (`pytest --full`) the whole set.

A sample has every kind of case that the whole set has; what is left out is more of the same (ADR 54). Tests that start
programs, kernbench itself from a command line or a compiler, are run by `make test-programs` (`pytest --programs`).
"""

import functools
import os
import random
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

# set by `pytest --full`, before tests are collected; processes of the tests inherit it
FULL = "KERNBENCH_FULL_TESTS"

Case = TypeVar("Case")


def full() -> bool:
    """Whether whole sets run."""
    return bool(os.environ.get(FULL))


def some(cases: Sequence[Case], count: int, kind: Callable[[Case], Hashable] = lambda case: None) -> list[Case]:
    """`count` cases of every kind, spread evenly over those of the kind: the first always, the last from two on.

    All of them with `--full`. They come in their order.
    """
    if full():
        return list(cases)
    kinds: dict[Hashable, list[int]] = {}
    for index, case in enumerate(cases):
        kinds.setdefault(kind(case), []).append(index)
    return [cases[index] for index in sorted(i for indices in kinds.values() for i in _spread(indices, count))]


def _spread(indices: list[int], count: int) -> list[int]:
    if count >= len(indices):
        return indices
    steps = max(count - 1, 1)
    return [indices[step * (len(indices) - 1) // steps] for step in range(count)]


def examples(usual: int, whole: int) -> int:
    """How many examples hypothesis draws, or programs a test makes: `usual`, or `whole` with `--full`."""
    return whole if full() else usual


def each(cases: Iterable[Case]) -> Callable[[Callable[[Case], None]], Callable[[], None]]:
    """A test of all cases, one after the other; what fails says which.

    For cases of a millisecond or two, which is what pytest takes to have a test of its own for one of them.
    """

    # an iterator would be empty the second time
    held = list(cases)

    def decorate(test: Callable[[Case], None]) -> Callable[[], None]:
        # no parameters: pytest would take them for fixtures
        def of_each() -> None:
            for case in held:
                try:
                    test(case)
                except BaseException as error:
                    error.add_note(f"the case is {case!r}")
                    raise

        of_each.__name__, of_each.__qualname__, of_each.__doc__ = test.__name__, test.__qualname__, test.__doc__
        of_each.__module__ = test.__module__
        return of_each

    return decorate


def each_row(rows: Iterable[Sequence[object]]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """As `each`, for cases that are values of several parameters."""

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        return each(rows)(functools.wraps(test)(lambda row: test(*row)))

    return decorate


def covering(cases: Sequence[Mapping[str, int]], count: int) -> list[int]:
    """Indices of a sample of `count` cases or more in which every value of every parameter occurs.

    A case says for each parameter which of its values it has. The sample is the same on every run and every machine.
    """
    order = list(range(len(cases)))
    random.Random(54).shuffle(order)
    missing = {value for case in cases for value in case.items()}
    chosen: list[int] = []
    while missing:
        best = max(order, key=lambda index: len(missing & cases[index].items()))
        chosen.append(best)
        missing -= cases[best].items()
    rest = [index for index in order if index not in set(chosen)]
    return sorted(chosen + rest[: max(count - len(chosen), 0)])


# The option and the mark


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run whole sets of cases where a sample runs otherwise")
    parser.addoption(
        "--programs", action="store_true", help="run the tests that start programs, and what is in a file that is named"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--full"):
        os.environ[FULL] = "1"
    else:
        os.environ.pop(FULL, None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with the mark `sampled(count)` so many combinations of its parameters stay; what is named runs.

    A test with the mark `named` stays where its file is named, one with the mark `programs` there and by `--programs`.
    Of a file that is named `--programs` leaves nothing out.
    """
    files = {(config.invocation_params.dir / name.partition("::")[0]).resolve() for name in config.args}
    if config.getoption("--programs"):
        others = {item for item in items if not item.get_closest_marker("programs")}
        _deselect(config, items, {item for item in others if item.path not in files})
    if full():
        return
    marks = ("named",) if config.getoption("--programs") else ("named", "programs")
    later = {item for item in items if any(item.get_closest_marker(mark) for mark in marks)}
    _deselect(config, items, {item for item in later if item.path not in files})
    if any("[" in name for name in config.args):
        return
    marked: dict[tuple[Path, str], list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sampled"):
            marked.setdefault((item.path, item.nodeid.partition("[")[0]), []).append(item)
    _deselect(config, items, {test for tests in marked.values() for test in _left_out(tests)})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Say why nothing has run where `--programs` left nothing of a folder."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and config.getoption("--programs"):
        terminalreporter.line(
            "--programs leaves only tests that start programs, and there is none in what was named: without it all "
            "of a folder runs; of a file that is named nothing is left out"
        )


def _deselect(config: pytest.Config, items: list[pytest.Item], left_out: Collection[pytest.Item]) -> None:
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _left_out(tests: list[pytest.Function]) -> list[pytest.Function]:
    (count,) = tests[0].get_closest_marker("sampled").args
    # values need not be hashable; combinations share them
    values = [{name: id(value) for name, value in test.callspec.params.items()} for test in tests]
    chosen = set(covering(values, count))
    return [test for index, test in enumerate(tests) if index not in chosen]
