"""Public Triton libraries on a GPU that is not there: their own tests, run unchanged, and a table of what came of it.

    git clone https://github.com/linkedin/Liger-Kernel
    python tools/libraries.py Liger-Kernel=./Liger-Kernel --cases 1 --json libraries.json

The reader fetches the sources; nothing of them is part of this repository. The Python that runs this file needs
kernbench, torch (a CPU build), Triton and what the library asks for. Each test file runs under `kernbench exec` in a
process of its own, `--jobs` at a time, with a limit on its time; `--together` runs all files of a library in one. Of
each parametrised test some small cases run (`--cases`, `--size`; `--all` for all).
Tests whose subject is another front end are left out by name.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from threading import Lock
from typing import TypedDict, cast
from xml.etree import ElementTree

NOT_BEGUN, STOPPED = "not begun: the time was over", "took too long"
# what a test says that ran out of time, here or in a launch
_TIME = re.compile(r"--kernbench-seconds|would take about|over budget|--max-seconds")


@dataclass(frozen=True)
class Library:
    """Where a library's tests are, what must be on Python's path to run them, and which files are not for this GPU."""

    tests: tuple[str, ...]
    path: tuple[str, ...]
    # patterns of files -> why they are left out
    left_out: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


LIBRARIES = {
    "Liger-Kernel": Library(
        ("test/transformers", "test/chunked_loss"),
        ("src", "."),
        {
            "*cutedsl*": "CuTe DSL",
            "*cute_moe*": "CuTe DSL",
            "*cutile*": "cuTile",
            "*monkey_patch*": "launches no kernel",
            "*auto_model*": "launches no kernel",
            "*trainer_integration*": "launches no kernel",
            "*test_transformers.py": "launches no kernel",
        },
    ),
    "flash-linear-attention": Library(("tests/ops", "tests/modules"), (".",), {"*tilelang*": "TileLang"}),
    # it would ask nvidia-smi which GPU there is
    "FlagGems": Library(("tests",), ("src", "."), options=("--mode", "quick"), environment={"GEMS_VENDOR": "nvidia"}),
    "mlstm_kernels": Library(("tests/torch",), (".",)),
    "Triformer": Library(("tests",), (".",)),
    "dion": Library(("tests",), (".",)),
}


class Kernel(TypedDict):
    """A kernel in the document of `kernbench exec`."""

    kernel: str
    launches: int
    checked: int
    seconds: float
    cpu_seconds: float
    findings: list[dict[str, object]]
    runs: list[dict[str, object]]


@dataclass
class FileResult:
    """One test file: its cases, and what its launches did."""

    file: str
    # test files in it, where it is a folder
    files: int = 1
    passed: int = 0
    failed: int = 0
    # of the whole process, and of the launches in it
    seconds: float = 0.0
    launch_seconds: float = 0.0
    # the same of the processors, which do not depend on what else a computer does
    cpu_seconds: float = 0.0
    launch_cpu_seconds: float = 0.0
    skipped: int = 0
    late: int = 0
    not_chosen: int = 0
    launches: int = 0
    kernels: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    # why cases were not run, and how many
    reasons: dict[str, int] = field(default_factory=dict)
    problem: str = ""


def run_file(library: Library, root: Path, file: Path, given: argparse.Namespace) -> FileResult:
    """Run a test file under `kernbench exec`."""
    result = FileResult(str(file.relative_to(root)))
    if file.is_dir():
        result.files = sum(not why for found, why in files_of(library, root, given.only) if file in found.parents)
    if time.monotonic() > given.end:
        result.problem = NOT_BEGUN
        earlier: FileResult = given.earlier.get((root.name, result.file), result)
        return earlier
    with tempfile.TemporaryDirectory(prefix="kernbench-library-") as made:
        document, verdicts = Path(made) / "exec.json", Path(made) / "junit.xml"
        # fmt: off
        words = [
            sys.executable, "-m", "kernbench", "exec", "--arch", given.arch, "--json", str(document),
            "--max-seconds", f"{given.launch_seconds:g}", *(["--first", str(given.first)] if given.first else []),
            "--", sys.executable, "-m", "pytest", "-v", "-p", "no:xdist", "-p", "no:cacheprovider",
            "--junitxml", str(verdicts), "--kernbench-seconds", f"{given.case_seconds:g}",
            *([] if given.all else ["--kernbench-cases", str(given.cases), "--kernbench-size", f"{given.size:g}"]),
            *(["-k", given.k] if given.k else []), *library.options, str(file),
            *(f"--ignore-glob={pattern}" for pattern in (library.left_out if file.is_dir() else ())),
        ]
        # fmt: on
        began = time.monotonic()
        said = _run(words, root, library, min(given.file_seconds, given.end - began))
        result.seconds = round(time.monotonic() - began, 1)
        _read_cases(result, verdicts, said)
        _read_launches(result, document)
        if given.log:
            log = Path(given.log) / f"{file.parent.name}-{file.stem}.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(said)
    return result


def _run(words: Sequence[str], root: Path, library: Library, seconds: float) -> str:
    """What a program said; one that takes longer is interrupted, and says what it has until then."""
    paths = [str((root / entry).absolute()) for entry in library.path]
    before = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        **library.environment,
        "PYTHONPATH": os.pathsep.join([*paths, *([before] if before else [])]),
    }
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        running = subprocess.Popen(
            words, cwd=root, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        late = ""
        try:
            running.wait(seconds)
        except subprocess.TimeoutExpired:
            late = "\nthe file took too long\n"
            _stop(running)
        output.seek(0)
        return output.read() + late


def _stop(running: subprocess.Popen[bytes]) -> None:
    """End a program with its children: as by Ctrl-C, after which pytest says what it has, then less politely."""
    for number, seconds in ((signal.SIGINT, 60), (signal.SIGTERM, 15), (signal.SIGKILL, 15)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(seconds)
            return


def _read_cases(result: FileResult, verdicts: Path, said: str) -> None:
    """Count what pytest says of each case."""
    chosen = re.search(r"(\d+) deselected", said)
    result.not_chosen = int(chosen[1]) if chosen else 0
    if not verdicts.exists():
        result.problem = STOPPED if "the file took too long" in said else _last_error(said)
        _read_lines(result, said)
        return
    if "the file took too long" in said:
        result.problem = STOPPED
    for case in ElementTree.parse(verdicts).getroot().iter("testcase"):
        name = f"{result.file}::{case.get('name')}"
        skipped, failed = case.find("skipped"), case.find("failure")
        failed = case.find("error") if failed is None else failed
        if skipped is not None:
            result.skipped += 1
            message = skipped.get("message") or (
                "fails by design" if "xfail" in skipped.get("type", "") else "no reason"
            )
            reason = message.splitlines()[0][:120]
            result.reasons[reason] = result.reasons.get(reason, 0) + 1
        elif failed is not None:
            message = (failed.get("message") or "").strip()
            if _TIME.search(message):
                result.late += 1
            else:
                result.failed += 1
                result.failures.append(f"{name}: {message[:300]}")
        else:
            result.passed += 1
    _count_late(result, said)


def _read_lines(result: FileResult, said: str) -> None:
    """Count the cases that ended before their file was stopped."""
    for name, verdict in _verdicts(said):
        if verdict == "PASSED":
            result.passed += 1
        elif verdict == "SKIPPED":
            result.skipped += 1
        else:
            result.failed += 1
            result.failures.append(f"{result.file}::{name}: the file was stopped before the reason was printed")
    _count_late(result, said)


def _verdicts(said: str) -> Iterator[tuple[str, str]]:
    """Cases with what came of them, by the lines of `pytest -v`; what a case printed may stand between the two."""
    name = ""
    for line in said.splitlines():
        begun = re.match(r"\S+\.py::(.+?)(?:$| (?=PASSED|FAILED|SKIPPED|ERROR| *$))", line)
        name = begun[1] if begun else name
        ended = re.search(r"(?:^| )(PASSED|FAILED|SKIPPED|ERROR)\b.*\[ *\d+%\]$", line)
        if ended and name:
            yield name, ended[1]
            name = ""


def _count_late(result: FileResult, said: str) -> None:
    """Cases that did not end before their file was stopped are too slow."""
    chosen = re.search(r"(\d+) selected", said) or re.search(r"collected (\d+) item", said)
    if chosen:
        result.late = max(result.late, int(chosen[1]) - result.passed - result.skipped - result.failed)


def _last_error(said: str) -> str:
    lines = [line for line in said.splitlines() if re.match(r"E  |.*Error", line)]
    return (lines[-1] if lines else "pytest wrote no verdicts").strip()[:200]


def _read_launches(result: FileResult, document: Path) -> None:
    """Count what kernbench says of each kernel."""
    if not document.exists():
        return
    read = json.loads(document.read_text())
    result.cpu_seconds = read["cpu_seconds"]
    for kernel in cast(list[Kernel], read["kernels"]):
        result.kernels.append(kernel["kernel"])
        result.launches += kernel["launches"]
        result.launch_seconds += kernel["seconds"]
        result.launch_cpu_seconds += kernel["cpu_seconds"]
        for finding in kernel["findings"]:
            where = cast(dict[str, object], finding["where"] or {})
            line = f"{where.get('file')}:{where.get('line')}"
            result.findings.append(f"{kernel['kernel']}: {finding['kind']} at {line}: {finding['message']}")


@dataclass
class LibraryResult:
    """All test files of a library that were run."""

    name: str
    files: list[FileResult] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def row(self) -> list[str]:
        """A row of the table."""
        files = self.files
        kernels = {kernel for one in files for kernel in one.kernels}
        late = sum(one.late for one in files)
        skipped = sum(one.skipped for one in files)
        not_run = f"{skipped} skipped by the tests, {late} too slow, {sum(one.not_chosen for one in files)} not chosen"
        return [
            self.name,
            str(sum(one.files for one in files)),
            str(sum(one.passed + one.failed for one in files)),
            str(len(kernels)),
            str(sum(one.launches for one in files)),
            str(sum(one.passed for one in files)),
            str(sum(one.failed for one in files)),
            str(sum(len(one.findings) for one in files)),
            f"{sum(one.seconds for one in files):.0f} ({sum(one.launch_seconds for one in files):.0f})",
            f"{sum(one.cpu_seconds for one in files):.0f} ({sum(one.launch_cpu_seconds for one in files):.0f})",
            not_run,
        ]


HEAD = [
    *("library", "files", "cases", "kernels", "launches", "right", "wrong", "findings"),
    *("seconds (in launches)", "CPU seconds (in launches)", "not run"),
]


def table(results: Sequence[LibraryResult]) -> str:
    """The table, in Markdown."""
    rows = [HEAD, ["---"] * len(HEAD), *(result.row() for result in results)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


FILE_HEAD = ["library", "file", "cases", "right", "wrong", "too slow", "findings", "launches", "remark"]


def table_of_files(results: Sequence[LibraryResult]) -> str:
    """A table with a row for each file, in Markdown."""
    rows = [FILE_HEAD, ["---"] * len(FILE_HEAD)]
    for result in results:
        for one in sorted(result.files, key=lambda one: one.file):
            counts = (one.passed + one.failed, one.passed, one.failed, one.late, len(one.findings), one.launches)
            rows.append([result.name, one.file, *map(str, counts), one.problem])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def read_earlier(path: str, folders: dict[str, Path]) -> dict[tuple[str, str], FileResult]:
    """The files of an earlier run (its --json) that were begun, by folder and name; one that stopped says so."""
    found = {}
    for library in json.loads(Path(path).read_text()) if path else []:
        for one in library["files"] if library["name"] in folders else []:
            result = FileResult(**one)
            if result.problem != NOT_BEGUN:
                result.problem = "; ".join(filter(None, ("of the earlier run", result.problem)))
                found[folders[library["name"]].name, result.file] = result
    return found


def _turn(root: Path, file: Path, given: argparse.Namespace) -> tuple[int, int]:
    """In which order files run: those that an earlier run did not begin, those that it stopped, and the longest first,
    so that none begins when all others have ended.
    """
    before = given.earlier.get((root.name, str(file.relative_to(root))))
    known = 0 if before is None else 1 if STOPPED in before.problem else 2
    return known, -file.stat().st_size


def files_of(library: Library, root: Path, only: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """The test files, with why one is left out."""
    for folder in library.tests:
        for file in sorted((root / folder).rglob("test_*.py")):
            if only and not any(fnmatch(file.name, pattern) for pattern in only):
                continue
            yield file, next((why for pattern, why in library.left_out.items() if fnmatch(file.name, pattern)), "")


def run_libraries(folders: dict[str, Path], given: argparse.Namespace) -> list[LibraryResult]:
    """Run the tests of libraries, and say how each file went."""
    results = {name: LibraryResult(name) for name in folders}
    files: list[tuple[str, Path]] = []
    for name, root in folders.items():
        for file, why in files_of(LIBRARIES[name], root, given.only):
            if why:
                results[name].left_out[file.name] = why
            elif not given.together:
                files.append((name, file))
        if given.together:
            files += [(name, root / folder) for folder in LIBRARIES[name].tests]
    files.sort(key=lambda one: _turn(folders[one[0]], one[1], given))

    def run(one: tuple[str, Path]) -> None:
        name, file = one
        result = run_file(LIBRARIES[name], folders[name], file, given)
        results[name].files.append(result)
        _print_file(result)
        if given.json:
            write_whole(Path(given.json), json.dumps([asdict(result) for result in results.values()], indent=1))

    with ThreadPoolExecutor(given.jobs) as workers:
        list(workers.map(run, files))
    return list(results.values())


_WRITING = Lock()


def write_whole(path: Path, text: str) -> None:
    """Write a file at once, so that a reader sees the one or the other."""
    with _WRITING:
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)


def _print_file(one: FileResult) -> None:
    print(
        f"{one.file}: {one.passed} right, {one.failed} wrong, {one.late} too slow, {one.skipped} skipped; "
        f"{len(one.kernels)} kernels, {one.launches} launches, {len(one.findings)} findings, {one.seconds:g} s "
        f"{one.problem}",
        file=sys.stderr,
        flush=True,
    )
    for line in [*one.failures, *one.findings]:
        print(f"    {line}", file=sys.stderr, flush=True)


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("library", nargs="+", metavar="NAME=FOLDER", help=f"one of {', '.join(LIBRARIES)}")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--cases", type=int, default=1, help="cases of each parametrised test")
    parser.add_argument("--size", type=float, default=1e6, help="the largest product of a case's whole numbers")
    parser.add_argument("--all", action="store_true", help="all cases")
    parser.add_argument("--together", action="store_true", help="all files of a library in one process")
    parser.add_argument("--first", type=int, default=0, help="check the first N launches of each kernel, 0: all")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="these test files only")
    parser.add_argument("-k", default="", help="as pytest's")
    parser.add_argument("--case-seconds", type=float, default=120.0)
    parser.add_argument("--launch-seconds", type=float, default=60.0)
    parser.add_argument("--file-seconds", type=float, default=900.0)
    parser.add_argument("--jobs", type=int, default=1, help="test files that run at a time")
    parser.add_argument("--seconds", type=float, default=86400.0, help="all files together; the rest is not run")
    parser.add_argument("--json", metavar="FILE", help="write all that is known")
    parser.add_argument("--log", metavar="FOLDER", help="keep what the programs printed")
    parser.add_argument(
        "--after",
        default="",
        metavar="FILE",
        help="the --json of an earlier run: what it did not begin comes first, and what there is no time for now is "
        "taken from there",
    )
    parser.add_argument("--files", action="store_true", help="print a table of all files, too")
    given = parser.parse_args(words)
    if given.together and given.only:
        parser.error("--together runs all files of a library, --only some: give one of the two")
    given.end = time.monotonic() + given.seconds
    for one in given.library:
        name, equals, folder = one.partition("=")
        if name not in LIBRARIES or not equals or not Path(folder).is_dir():
            parser.error(f"{one!r}: write NAME=FOLDER with a folder of sources and a name of {', '.join(LIBRARIES)}")
    given.folders = {name: Path(folder).absolute() for name, _, folder in (one.partition("=") for one in given.library)}
    given.earlier = read_earlier(given.after, given.folders)
    return given


def main(words: Sequence[str] | None = None) -> int:
    """Run the libraries, print the table; 1 where there are findings."""
    given = _arguments(words)
    results = run_libraries(given.folders, given)
    print(table(results))
    if given.files:
        print(f"\n{table_of_files(results)}\n")
    for result in results:
        reasons = Counter[str]()
        for file in result.files:
            reasons.update(file.reasons)
        for why in dict.fromkeys(result.left_out.values()):
            print(f"{result.name}: {list(result.left_out.values()).count(why)} files left out: {why}")
        for reason, count in reasons.most_common(8):
            print(f"{result.name}: {count} skipped: {reason}")
    return int(any(one.findings for result in results for one in result.files))


if __name__ == "__main__":
    sys.exit(main())
