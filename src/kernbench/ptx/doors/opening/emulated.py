"""`with emulated("sm_90a") as session:` around ordinary code: its launches run on an emulated GPU, checked."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernbench.common.errors import MisuseError
from kernbench.ptx.doors.opening.environment import FOLDER
from kernbench.ptx.doors.opening.installing import Doors
from kernbench.ptx.doors.options import options_from
from kernbench.ptx.doors.session import Session

# the sessions that are open, the innermost last
_OPEN: list[Session] = []


def current() -> Session:
    """The session that launches go to."""
    if not _OPEN:
        raise MisuseError("no emulated GPU is in use: open one with kernbench.ptx.emulated('sm_90a')")
    return _OPEN[-1]


@contextmanager
def emulated(
    arch: str = "sm_90a",
    *,
    folder: Path | str | None = None,
    keep_runs: bool = True,
    driver: bool = False,
    **options: Any,
) -> Iterator[Session]:
    """Let the machine have an emulated GPU of architecture `arch` inside the block.

    Launches of Triton kernels run on it, and torch's CPU tensors can be made on, and moved to, a device "cuda". CuPy,
    Numba, cuda.core and CuTe DSL, imported inside the block, find it as CUDA's driver; with `driver` it is there at
    once, for modules of C++ that need it. Where the process has NVIDIA's driver already, a warning says so.

    The session has `launches`, `findings` and `assert_safe()`. `options` are those of `doors.options.Options`; records
    are written to `folder` as they are made, under `kernbench exec` to its own. Without `keep_runs`, launches keep no
    timelines, for programs with many.
    """
    kept = folder or os.environ.get(FOLDER)
    session = Session(options_from({"arch": arch, **options}), folder=Path(kept) if kept else None, keep_runs=keep_runs)
    doors = Doors(lambda: session, driver=True)
    _OPEN.append(session)
    try:
        doors.install()
        if driver:
            doors.open_driver()
        yield session
    finally:
        doors.remove()
        _OPEN.remove(session)
        session.close()
