import json
import os
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from kernbench.ptx.doors.driver.library import LibraryError, library_folder
from kernbench.ptx.doors.driver.running import driver_environment
from kernbench.ptx.doors.options import read_options
from kernbench.ptx.doors.records import HOST, read_records
from kernbench.ptx.doors.summary import read_session


@pytest.fixture(scope="session")
def library() -> Path:
    """The folder of the driver library."""
    try:
        return library_folder()
    except LibraryError as problem:
        pytest.skip(f"no C compiler: {problem}")


class Result:
    """What a program printed, how it ended, and what was recorded meanwhile."""

    def __init__(self, done: subprocess.CompletedProcess, records: list):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.begun = [record for record in records if record["event"] == "begin"]
        self.launches = [record for record in records if record["event"] == "launch"]
        self.refusals_seen = sum(record["event"] == "refusal seen" for record in records)
        self.findings = [finding for launch in self.launches for finding in launch["findings"]]
        self.of_host = [
            finding
            for kernel in read_session(Path(), records).kernels
            if kernel.title == HOST
            for finding in kernel.findings
        ]


@pytest.fixture(scope="module")
def run_program(library, tmp_path_factory):
    """Runs programs on the driver library; those with the same options have one emulator to connect to."""
    with ExitStack() as stack:
        opened = {}

        def environment(options: str) -> tuple:
            if options not in opened:
                folder = tmp_path_factory.mktemp("records")
                opened[options] = folder, stack.enter_context(driver_environment(read_options(options), folder))
            return opened[options]

        def run(*command, **options) -> Result:
            folder, added = environment(json.dumps({"arch": "sm_90a", **options}))
            before = len(list(read_records(folder)))
            words = [str(word) for word in command]
            given = {**os.environ, **added}
            done = subprocess.run(words, env=given, capture_output=True, text=True, timeout=900, check=False)
            return Result(done, list(read_records(folder))[before:])

        yield run


@pytest.fixture(scope="session")
def compiled(library, tmp_path_factory):
    """Builds a C program of this folder over the driver library."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("no C compiler")

    def build(name: str, *flags: str) -> Path:
        made = tmp_path_factory.mktemp(name) / name
        source = Path(__file__).parent / f"{name}.c"
        libraries = [f"-L{library}", "-Wl,--no-as-needed", "-l:libcuda.so.1", "-pthread"]
        command = [compiler, "-g", "-o", made, source, *libraries, *flags]
        subprocess.run([str(word) for word in command], check=True, timeout=900)
        return made

    return build


@pytest.fixture(scope="session")
def client(compiled) -> Path:
    """A small C program over the driver API."""
    return compiled("client")
