"""The npu chip: one frozen dataclass for each table of a chip file, and how chips are found by name or path."""

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Annotated, Any

from kernbench.common.errors import MachineError, unknown
from kernbench.machine.document import document
from kernbench.machine.keys import LABEL, RATE, SHAPE, Choice, Count, Quantity, Text, whole
from kernbench.machine.model import PS_PER_SECOND
from kernbench.machine.schema import KeyInfo, Table

_GIGA = 10**9
_PS_PER_NS = 10**3
_MOST_FILES = 8
KIND = "npu"


def _bandwidth(help: str) -> Quantity:
    return Quantity("GB/s", RATE, help, 0.001, 1_000_000, parts=_GIGA)


def _time(help: str) -> Quantity:
    return Quantity("ns", RATE, help, 0, 1_000_000_000, parts=_PS_PER_NS)


def _size(help: str) -> Count:
    return Count("bytes", SHAPE, help, 32, 2**30)


def _macs(dtype: str) -> Count:
    return Count("MAC/cycle", RATE, f"multiply-accumulates of {dtype} operands", 1, 2**20)


@dataclass(frozen=True)
class Clusters(Table):
    """Clusters of one cube core (AIC) and two vector cores (AIV)."""

    count: Annotated[int, Count("clusters", SHAPE, "clusters on the chip", 1, 4096)]
    clock: Annotated[float, Quantity("GHz", RATE, "clock of all cores", 0.001, 100, parts=_GIGA)]
    issue: Annotated[int, Count("cycles", RATE, "a core's time to hand one instruction to a pipe", 0, 100_000)]

    @property
    def cycle_ps(self) -> Fraction:
        """One cycle in picoseconds, exact."""
        return Fraction(PS_PER_SECOND, whole(self.clock, _GIGA))


@dataclass(frozen=True)
class Spaces(Table):
    """Memories of one core: UB of an AIV, the others of an AIC."""

    ub: Annotated[int, _size("unified buffer of a vector core")]
    l1: Annotated[int, _size("L1 buffer of a cube core")]
    l0a: Annotated[int, _size("left operands of the cube")]
    l0b: Annotated[int, _size("right operands of the cube")]
    l0c: Annotated[int, _size("results of the cube")]


@dataclass(frozen=True)
class MacRates(Table):
    """Multiply-accumulates per cycle of one cube, by type of operand."""

    f16: Annotated[int, _macs("f16")]
    bf16: Annotated[int, _macs("bf16")]
    i8: Annotated[int, _macs("i8")]
    f32: Annotated[int, _macs("f32")]


@dataclass(frozen=True)
class Cube(Table):
    """The cube of an AIC: blocks of 16 x 16 results, each step as deep as its MACs per cycle allow."""

    side: Annotated[int, Count("elements", RATE, "rows and columns of one block of results", 1, 1024)]
    macs: MacRates


@dataclass(frozen=True)
class Vector(Table):
    """The vector unit of an AIV."""

    simple: Annotated[int, Count("bytes/cycle", RATE, "add, multiply, compare, convert, move, reduce", 1, 2**20)]
    special: Annotated[int, Count("bytes/cycle", RATE, "exp, log, division, roots", 1, 2**20)]


@dataclass(frozen=True)
class Paths(Table):
    """Bandwidth of each way bytes move, for one core."""

    gm_ub: Annotated[float, _bandwidth("device memory to UB")]
    gm_l1: Annotated[float, _bandwidth("device memory to L1")]
    ub_gm: Annotated[float, _bandwidth("UB to device memory")]
    l1_gm: Annotated[float, _bandwidth("L1 to device memory")]
    l0c_gm: Annotated[float, _bandwidth("L0C to device memory")]
    l0c_l1: Annotated[float, _bandwidth("L0C to L1")]
    l1_l0a: Annotated[float, _bandwidth("L1 to L0A")]
    l1_l0b: Annotated[float, _bandwidth("L1 to L0B")]

    def transfer_ps(self, path: str, nbytes: int) -> int:
        """Time `nbytes` take on a path, rounded up to a whole picosecond."""
        rate = whole(float(getattr(self, path)), _GIGA)
        return ceil(Fraction(nbytes * PS_PER_SECOND, rate))


@dataclass(frozen=True)
class Memory(Table):
    """Device memory (GM), shared by all cores."""

    bandwidth: Annotated[float, _bandwidth("bandwidth of all cores together")]
    latency: Annotated[float, _time("time from a request to its first byte, beyond what the paths' rates hold")]

    @property
    def bytes_per_ps(self) -> float:
        """Bandwidth as the timing engine takes it."""
        return whole(self.bandwidth, _GIGA) / PS_PER_SECOND

    @property
    def latency_ps(self) -> int:
        """Latency in picoseconds."""
        return whole(self.latency, _PS_PER_NS)


@dataclass(frozen=True)
class Tasks(Table):
    """The task runtime: one orchestrator, several schedulers, and rings by depth of scope."""

    submit: Annotated[float, _time("orchestrator's time for one submit")]
    dispatch: Annotated[float, _time("a scheduler's time to start one block")]
    schedulers: Annotated[int, Count("threads", RATE, "scheduler threads", 1, 64)]
    rings: Annotated[int, Count("rings", SHAPE, "rings; deeper scopes share the last", 1, 16)]
    window: Annotated[int, Count("tasks", SHAPE, "task slots of a ring", 1, 2**20)]
    heap: Annotated[int, Count("bytes", SHAPE, "memory of a ring for tensors the runtime makes", 1024, 2**40)]
    dependences: Annotated[int, Count("entries", SHAPE, "dependence entries of a ring", 1, 2**20)]

    @property
    def submit_ps(self) -> int:
        """Time of one submit in picoseconds."""
        return whole(self.submit, _PS_PER_NS)

    @property
    def dispatch_ps(self) -> int:
        """Time of one dispatch in picoseconds."""
        return whole(self.dispatch, _PS_PER_NS)


@dataclass(frozen=True)
class ChipModel(Table):
    """An npu chip: what the functional pass needs (shape keys) and what timing needs (shape and rate keys)."""

    whole = "a2a3"

    name: Annotated[str, Text("", LABEL, "what the chip is called", 64)]
    kind: Annotated[str, Choice("", SHAPE, "the target that runs on it", (KIND,))]
    clusters: Clusters
    spaces: Spaces
    cube: Cube
    vector: Vector
    paths: Paths
    memory: Memory
    tasks: Tasks

    @property
    def hash(self) -> str:
        """Twelve hex digits that are equal where every key but the name is."""
        content = {name: key.data(value) for name, key, value in self.entries() if key.role != LABEL}
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    def keys(self) -> list[KeyInfo]:
        """Every key with its unit, value, allowed values, help and role."""
        return [
            KeyInfo(name, key.unit, key.data(value), key.show(value), key.allowed, key.help, key.role)
            for name, key, value in self.entries()
        ]

    def to_toml(self) -> str:
        """A commented chip file that loads as this chip."""
        return document(self)

    def override(self, changes: Mapping[str, Any]) -> "ChipModel":
        """This chip with some dotted keys changed: `{"tasks.window": 16}`."""
        known = [name for name, _, _ in self.entries()]
        tree = self.to_dict()
        for name, value in changes.items():
            if name not in known:
                raise MachineError(unknown("chip key", name, known))
            *tables, last = name.split(".")
            inner = tree
            for table in tables:
                inner = inner[table]
            inner[last] = value
        return ChipModel.build(tree, "override")

    def cycles_ps(self, cycles: int | Fraction) -> int:
        """The duration of `cycles`, rounded up to a whole picosecond."""
        return ceil(cycles * self.clusters.cycle_ps)


def bundled() -> list[str]:
    """The names of the chips that come with kernbench."""
    folder = files("kernbench.npu") / "chips"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load(chip: "str | os.PathLike[str] | ChipModel") -> ChipModel:
    """The chip meant by a bundled name, a path to a TOML file, or a `ChipModel`, which is returned as it is.

    A file may say `extends = "a2a3"` (or a path beside it) and give only the keys that differ. Its name is then that of
    the file unless it gives one.
    """
    if isinstance(chip, ChipModel):
        return chip
    tree, label = _tree(chip, Path(), _MOST_FILES)
    return ChipModel.build(tree, label)


def is_chip(chip: str | os.PathLike[str]) -> bool:
    """Whether a name or file is that of an npu chip, and of no other machine; a file that cannot be read is none."""
    try:
        return _tree(chip, Path(), _MOST_FILES)[0].get("kind") == KIND
    except MachineError:
        return False


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        why = error.strerror or error
        raise MachineError(f"{path} cannot be read: {why}. Bundled chips: {', '.join(bundled())}") from None
    except UnicodeDecodeError as error:
        raise MachineError(f"{path} cannot be read: {error}") from None


def _tree(chip: str | os.PathLike[str], folder: Path, left: int) -> tuple[dict[str, Any], str]:
    """All keys of a chip file, those it extends included."""
    if isinstance(chip, str) and chip in bundled():
        text, label, beside = (files("kernbench.npu") / "chips" / f"{chip}.toml").read_text(), f"chip {chip}", folder
    else:
        path = folder / chip
        if not chip or (not path.exists() and not _looks_like_a_path(str(chip))):
            raise MachineError(f"{unknown('chip', str(chip), bundled())} A path to a TOML file works as well.")
        text, label, beside = _read(path), str(path), path.parent
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise MachineError(f"{label}: not valid TOML: {error}") from None
    base = tree.pop("extends", None)
    if base is None:
        return tree, label
    if not isinstance(base, str) or not left:
        raise MachineError(f"{label}: extends = {base!r}: a bundled chip or a path is wanted, and no circle of files")
    own = {"name": Path(label).stem, **tree} if label != f"chip {chip}" else tree
    return _overlaid(_tree(base, beside, left - 1)[0], own), label


def _looks_like_a_path(text: str) -> bool:
    return text.endswith(".toml") or "/" in text or os.sep in text


def _overlaid(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in top.items():
        both = isinstance(merged.get(name), Mapping) and isinstance(value, Mapping)
        merged[name] = _overlaid(merged[name], value) if both else value
    return merged
