"""A whole target in one file: boards whose kernels add and scale vectors, held in registers, one command at a time.

A bench's `host(p, machine)` returns `Host(machine)`. A kernel takes a `Tape` and calls `load`, `add`, `scale` and
`store`. Each command is recorded with its length; a register that nobody loaded reads as NaN and is a finding.
"""

import sys
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np

from kernbench.common.errors import MachineError, unknown
from kernbench.machine.description import Description
from kernbench.machine.keys import LABEL, RATE, SHAPE, Choice, Count, Text
from kernbench.machine.schema import Table
from kernbench.result.finding import Finding, FindingLog, SourceLocation
from kernbench.result.run import Run, Status
from kernbench.result.timeline import Lane, Step, Timeline
from kernbench.result.untimed import no_time
from kernbench.safety.budget import Budget
from kernbench.targets.registry import Commands, Listed
from kernbench.targets.target import Measured, Target

LISTED = Listed(
    "toy",
    __name__,
    machine="board",
    template="a vector that is scaled and added",
    sources=(".tape",),
    commands=Commands("toy", __name__, "Boards: say hello."),
)
LANES = [Lane("board", "bus"), Lane("board", "unit")]
ENGINES = {"load": "bus", "store": "bus", "add": "unit", "scale": "unit"}


# Machine files


@dataclass(frozen=True)
class Unit(Table):
    """What computes and what moves."""

    registers: Annotated[int, Count("registers", SHAPE, "registers of a board", 1, 64)]
    step: Annotated[int, Count("ps", RATE, "time of one element in the unit", 1, 10**6)]
    move: Annotated[int, Count("ps", RATE, "time of one element on the bus", 1, 10**6)]


@dataclass(frozen=True)
class Board(Description):
    """A board."""

    whole = "bench_top"
    called = "board"

    name: Annotated[str, Text("", LABEL, "what the board is called", 64)]
    kind: Annotated[str, Choice("", SHAPE, "the target that runs on it", ("toy",))]
    unit: Unit


BENCH_TOP = {"name": "bench_top", "kind": "toy", "unit": {"registers": 4, "step": 10, "move": 30}}


class Boards:
    """One board that is bundled, and files."""

    default = "bench_top"

    def bundled(self):
        return [self.default]

    def load(self, name):
        if name == self.default:
            return Board.build(BENCH_TOP, name)
        if not str(name).endswith(".toml"):
            raise MachineError(unknown("board", name, self.bundled()))
        return Board.build(tomllib.loads(Path(name).read_text()), str(name))

    def owns(self, name):
        file = Path(name)
        return name == self.default or (file.is_file() and 'kind = "toy"' in file.read_text())

    def size(self, machine):
        return f"{machine.unit.registers} registers"


# Launching


class Tape:
    """What a kernel calls."""

    def __init__(self, board, log):
        self.board, self.log, self.rows, self.registers = board, log, [], {}

    def load(self, register, array):
        self._note("load", len(array))
        self.registers[register % self.board.unit.registers] = np.array(array)

    def add(self, register, other):
        self.registers[register] = self._read("add", register) + self._value(other)

    def scale(self, register, factor):
        self.registers[register] = self._read("scale", register) * factor

    def store(self, register, array):
        array[...] = self._read("store", register)

    def _read(self, op, register):
        value = self._value(register)
        self._note(op, np.size(value))
        return value

    def _value(self, register):
        if register not in self.registers:
            message = f"register {register} is read before anything was loaded into it"
            self.log.add(Finding("uninitialised-read", message, self._where(), hint="load it first"))
        return self.registers.get(register, np.nan)

    def _note(self, op, length):
        self.rows.append((op, length, self._where()))

    def _where(self):
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__:
            frame = frame.f_back
        return SourceLocation(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


class Host:
    """What benches launch on."""

    def __init__(self, machine):
        self.machine, self.budget, self.schedule, self.stop = machine, Budget(), "canonical", None
        self.shapes_only, self.launches = False, []

    def launch(self, kernel, *arrays, outputs):
        log = FindingLog()
        tape = Tape(self.machine, log)
        kernel(tape, *arrays, *outputs.values())
        origin = {"target": "toy", "kernel": kernel.__name__, "machine": self.machine.name}
        origin |= {"machine_hash": self.machine.hash, "schedule": self.schedule}
        run = Run(dict(outputs), log.findings(), ("uninitialised-read",), Status.FINISHED, tape.rows, origin=origin)
        run.metrics["commands"] = len(tape.rows)
        self.launches.append(replace(run))
        return run


# Time


class Timing:
    """One command after the other."""

    def __init__(self, rows, board):
        self.rows, self.board = rows, board
        cost = {"bus": board.unit.move, "unit": board.unit.step}
        self.spent = np.array([length * cost[ENGINES[op]] for op, length, _ in rows], np.int64)
        self.finish = np.cumsum(self.spent)

    def again(self, board):
        return Timing(self.rows, board)


class ToyTarget(Target):
    """Boards."""

    name = "toy"
    no_clock = "a board without a tape has no clock"
    outputs_are = "what outputs= names"
    machines = Boards()

    def measured(self):
        return Measured(("bus", "unit"), ("bus", "unit"), ("the other one",))

    def explain(self, cause):
        return "The bus and the unit never work at once." if cause == "the other one" else ""

    def template(self):
        return TEMPLATE

    def time_recording(self, recording, machine):
        return Timing(recording, machine)

    def summary(self, timing):
        busy = {"bus": 0, "unit": 0}
        for (op, _, _), spent in zip(timing.rows, timing.spent.tolist(), strict=True):
            busy[ENGINES[op]] += spent
        total, bound = sum(busy.values()), max(busy, key=busy.get)
        return {
            "time_ps": total,
            "busy_ps": busy,
            "utilisation": {name: time / total for name, time in busy.items()},
            "engines": ("bus", "unit"),
            "floors_ps": busy,
            "bound": bound,
            "floor_ratio": total / busy[bound],
            "gap_ps": {"the other one": total - busy[bound]},
        }

    def retime(self, run, machine, drawn=True):
        why = no_time(run, self.no_clock)
        if why:
            return replace(run, metrics={**run.metrics, "no_time": why})
        timing = Timing(run.recording, machine)
        found = self.summary(timing)
        rates = {"elements": {"amount": 1, "achieved": 2.0, "peak": 4.0}}
        metrics = {**run.metrics, **found, "rates": rates, "critical_path_ps": found["busy_ps"], "sensitivity": {}}
        return replace(run, metrics=metrics, timeline=self._drawn(timing) if drawn else None)

    def _drawn(self, timing):
        start, ops = timing.finish - timing.spent, list(ENGINES)
        lane = np.array([[lane.name for lane in LANES].index(ENGINES[op]) for op, _, _ in timing.rows])
        name = np.array([ops.index(op) for op, _, _ in timing.rows])
        path = [
            Step(LANES[k], op, where, "", 0, int(begin), int(end))
            for k, (op, _, where), begin, end in zip(lane, timing.rows, start, timing.finish, strict=True)
        ]
        sites, flows = [where for _, _, where in timing.rows], np.empty((0, 2), np.int64)
        site = np.arange(len(sites))
        return Timeline("ps", LANES, ops, sites, lane, name, site, start, timing.finish, flows, path)


TARGET = ToyTarget()
TEMPLATE = '''"""Scale a vector and add it to itself."""

from dataclasses import dataclass

import numpy as np
from toy_target import Host

from kernbench.bench import Bench, Expected, param


@dataclass(frozen=True)
class Parameters:
    n: int = param(8, "elements", low=1)
    board: str = param("bench_top", "the board")


def inputs(p, rng):
    return {"x": rng.standard_normal(p.n)}


def golden(p, inputs):
    return {"o": Expected(inputs["x"] * 3)}


def kernel(tape, x, o):
    tape.load(0, x)
    tape.load(1, x)
    tape.scale(0, 2.0)
    tape.add(0, 1)
    tape.store(0, o)


def launch(p, inputs, *, torch):
    return torch.launch(kernel, inputs["x"], outputs={"o": np.zeros(p.n)})


BENCH = Bench("NAME", "scale and add", Parameters, inputs, golden, lambda p, board: Host(board), launch)
'''


def __getattr__(name):
    """`app`, the commands of its own; typer is needed by nobody else."""
    if name != "app":
        raise AttributeError(name)
    import typer

    made = typer.Typer()
    made.callback()(lambda: None)
    made.command("hello", short_help="Say hello.")(lambda: typer.echo("hello from a board"))
    return made
