"""A bench whose points fail in every way a point can; `how` says which. Sweeps that go on are tested with it."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernbench import mesh
from kernbench.bench import Bench, Expected, param


def double(x_ptr, o_ptr, *, tl):
    """A kernel of one rank."""
    tl.store(o_ptr, tl.load(x_ptr, shape=(4, 4)) * 2.0)


def hungry(x_ptr, o_ptr, *, tl):
    """A kernel that takes memory of this process."""
    bytearray(2**31)
    double(x_ptr, o_ptr, tl=tl)


@dataclass(frozen=True)
class Parameters:
    """What goes wrong, and another parameter to sweep over."""

    how: str = param("fine", "what goes wrong")
    seconds: float = param(0.0, "how long a pass takes")
    number: int = param(0, "another parameter")
    marker: str = param("", "a file that is there once the point hangs")
    machine: str = param("reference", "bundled machine or TOML path")


class Endless:
    """Its text is that of a list that has it."""

    def __repr__(self):
        return repr([self])


def inputs(p, rng):
    """Inputs, or what goes wrong."""
    time.sleep(p.seconds)
    _fail(p.how, p.marker)
    return {"x": rng.standard_normal((4, 4)).astype(np.float32)}


def _fail(how, marker):
    if how == "raises":
        raise ValueError("broken\non two lines")
    if how == "interrupts":
        raise KeyboardInterrupt
    if how == "says much":
        raise ValueError("x" * 100_000)
    if how == "breaks NumPy":
        np.zeros = None
    if how == "forks":
        os.fork()
    if how == "forks and waits" and not os.fork():
        Path(marker).write_text(str(os.getpid()))
        time.sleep(1e6)
    if how == "starts a program":
        started = subprocess.Popen(["sleep", "100000"], start_new_session=True)
        Path(marker).write_text(f"{started.pid} {os.readlink(f'/proc/{started.pid}/fd/2')}")
    if how == "prints":
        os.write(1, b"printed by a kernel")
    if how == "exits":
        os._exit(3)
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "calls itself":
        sys.setrecursionlimit(10**9)
        repr(Endless())
    if how == "asks to exit":
        raise SystemExit(0)
    if how == "takes memory":
        np.ones(2**28)
    if how == "hangs" and marker:
        Path(marker).touch()
    while how == "hangs":
        time.sleep(0.01)


bench = Bench(
    "deadly",
    "points that fail",
    Parameters,
    inputs,
    lambda p, x: {"o": Expected(x["x"] * 2.0)},
    lambda p, machine: mesh.Host(machine, ranks=1),
    lambda p, x, *, torch: torch.launch(
        hungry if p.how == "takes memory in its kernel" else double, torch.shard(x["x"]), torch.empty((4, 4), "f32")
    ),
)
