"""From `kernbench exec` to the programs it starts.

Environment variables carry the options and the folder of records.
"""

import atexit
import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from kernbench.ptx.doors.opening.installing import Doors
from kernbench.ptx.doors.terms.running import TEST

if TYPE_CHECKING:
    from kernbench.ptx.doors.options import Options
    from kernbench.ptx.doors.session import Session

OPTIONS, FOLDER = "KERNBENCH_SESSION", "KERNBENCH_SESSION_FOLDER"
_MAKING = Lock()
HOOK = Path(__file__).parent.parent / "hook"


def child_environment(options: "Options", folder: Path, before: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program whose launches, and those of its children, are to be emulated."""
    paths = [str(HOOK), *filter(None, [before.get("PYTHONPATH")])]
    # a test of which this is a part is none of the program's own
    kept = {name: value for name, value in before.items() if name != TEST}
    return {
        **kept,
        OPTIONS: options.to_json(),
        FOLDER: str(folder),
        "PYTHONPATH": os.pathsep.join(paths),
    }


def process_session() -> "Session":
    """The session of this process, created at the first launch; concurrent threads get the same one."""
    with _MAKING:
        return _process_session()


@cache
def _process_session() -> "Session":
    from kernbench.ptx.doors.options import read_options
    from kernbench.ptx.doors.session import Session

    options = read_options(os.environ[OPTIONS])
    return Session(options, folder=Path(os.environ[FOLDER]), keep_runs=False)


def start() -> None:
    """Open doors as the program imports their front ends."""
    if OPTIONS in os.environ and FOLDER in os.environ:
        # the first to be registered is called last
        atexit.register(_end)
        Doors(process_session).install()
        if "KERNBENCH_DRIVER" in os.environ:
            from kernbench.ptx.doors.driver.local import answer_under_exec

            answer_under_exec(process_session)


def _end() -> None:
    """Leave a process that has launched kernels soon."""
    if _process_session.cache_info().currsize:
        from kernbench.safety.processes.leaving import freeze

        freeze()


def python_for(words: list[str]) -> list[str]:
    """A command line; a Python file alone is run with this Python."""
    return [sys.executable, *words] if words and words[0].endswith(".py") else words
