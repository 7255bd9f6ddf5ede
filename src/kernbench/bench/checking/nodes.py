"""Checks benches of a folder on the nodes of a Ray cluster: each file is a task, checked as on this machine.

A task passes its file to a *keeper*, a process beside Ray's without threads, which has compiled loops loaded and
runs each file in a fork of itself with the limits of the check (docs/adr/0067). The folder must be on every node at the
same path; a node where a file is missing, or differs, is an error of the command and not a verdict on the file.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from kernbench.bench.checking.check import Conditions, Work, check_works, default_memory, works_of
from kernbench.bench.cluster import Cluster, OtherNodeError, Outcome
from kernbench.bench.discovery.collection import Case
from kernbench.common.errors import KernbenchError
from kernbench.result.load import read_run
from kernbench.result.reading import Data, Reader
from kernbench.safety.confined import end_with

_KEEP = "from kernbench.bench.checking.nodes import keep; keep({socket}, {parent})"


@dataclass(frozen=True)
class Sent:
    """A file as it is sent to a node: its path, its working folder, the digest of its text, and how it is checked.

    `most` is the number of files of the whole check: an upper bound of the files on one node at once.
    """

    folder: str
    file: str
    digest: str
    claimed: bool
    how: Conditions
    most: int


def check_files_on(cluster: Cluster, files: Sequence[Path], how: Conditions) -> Generator[Case, None, None]:
    """As `check_files`, with the files checked on a cluster's nodes."""
    works = works_of(files)
    waiting = iter([work for work in works if not work.done])
    # a test's clock cannot be sent to nodes
    plain = replace(how, jobs=1, clock=Conditions.clock)

    def sent(work: Work) -> tuple[Sent]:
        digest = _digest(work.file)
        return (Sent(str(Path.cwd()), str(work.file), digest, work.claimed, plain, len(works)),)

    with closing(cluster.outcomes(check_on_node, lambda _: next(waiting, None), sent)) as outcomes:
        yield from _in_order(works, outcomes)


def _in_order(works: Sequence[Work], outcomes: Iterator[Outcome[Work, list[Data]] | None]) -> Iterator[Case]:
    for work in works:
        while not work.done:
            outcome = next(outcomes)
            if outcome is not None:
                _take(outcome)
        yield from work.cases


def _take(outcome: Outcome[Work, list[Data]]) -> None:
    work = outcome.work
    work.done = True
    for data in outcome.result or []:
        run = None if data["run"] is None else read_run(Reader(data["run"], str(work.file)))
        work.cases.append(Case(work.file, data["panel"], data["seconds"], run, data["error"], data["output"]))
    if outcome.error is not None:
        text = f"{work.file}: {outcome.error}\n  next: look at the logs and the memory of the cluster's nodes"
        work.fail("load", outcome.seconds, text)


_keeper: "tuple[subprocess.Popen[bytes], Connection[Sent, _Answer]] | None" = None
_Answer = list[Data] | str


def check_on_node(sent: Sent) -> list[Data]:
    """The task: its file's cases as plain data, from the keeper of this process."""
    global _keeper
    if _keeper is None or _keeper[0].poll() is not None:
        _keeper = _started()
    process, connection = _keeper
    try:
        connection.send(sent)
        answer = connection.recv()
    except (EOFError, OSError):
        _keeper = None
        raise KernbenchError(f"the process that runs benches ended with exit code {process.wait()}") from None
    if isinstance(answer, str):
        raise OtherNodeError(answer)
    return answer


def _started() -> "tuple[subprocess.Popen[bytes], Connection[Sent, _Answer]]":
    here, there = Pipe()
    begin = f"import sys; sys.path[:] = {sys.path!r}; " + _KEEP.format(socket=there.fileno(), parent=os.getpid())
    process = subprocess.Popen([sys.executable, "-c", begin], stdin=subprocess.DEVNULL, pass_fds=(there.fileno(),))
    there.close()
    return process, here


def keep(socket_number: int, parent: int) -> None:
    """Check the files that arrive at a socket, one after the other, until its other end is closed."""
    end_with(parent)
    connection: Connection[_Answer, Sent] = Connection(socket_number)
    while True:
        try:
            sent = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(_answer(sent))


def _answer(sent: Sent) -> _Answer:
    """The cases of a file; an error message if this node does not have it."""
    where = f"on the node {socket.gethostname()}"
    try:
        os.chdir(sent.folder)
        found = _digest(Path(sent.file))
    except OSError as error:
        return f"{where} {sent.folder} or {sent.file} in it is missing ({error.strerror}): {_SAME}"
    if found != sent.digest:
        return f"{where} {Path(sent.folder, sent.file)} is not the file that is here: {_SAME}"
    at_once = min(len(os.sched_getaffinity(0)), sent.most)
    how = replace(sent.how, memory=sent.how.memory or default_memory(at_once))
    return [_plain(case) for case in check_works([Work(Path(sent.file), sent.claimed)], how)]


_SAME = "the folder has to be on every node at the same path, such as on a file system that they share"


def _plain(case: Case) -> Data:
    run = None if case.run is None else case.run.to_dict()
    return {"panel": case.panel, "seconds": case.seconds, "run": run, "error": case.error, "output": case.output}


def _digest(file: Path) -> str:
    return sha256(file.read_bytes()).hexdigest()
