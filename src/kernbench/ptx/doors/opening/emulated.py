"""`with emulated("sm_90a") as session:` runs the launches of ordinary code on an emulated GPU, with checks."""

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

# open sessions, innermost last
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
    """Give the process an emulated GPU of architecture `arch` inside the block.

    Triton kernels run on it, and torch's CPU tensors can be created on, and moved to, a device "cuda". CuPy, Numba,
    cuda.core and CuTe DSL, if imported inside the block, find it through CUDA's driver. With `driver` the driver is
    available at once, for C++ modules that need it. If the process has NVIDIA's driver loaded already, a warning says
    so.

    The session has `launches`, `findings` and `assert_safe()`. `options` are those of `doors.options.Options`. Records
    are written to `folder` as they are made, under `kernbench exec` to its own folder. Without `keep_runs`, launches
    keep no timelines, for programs with many launches.
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
