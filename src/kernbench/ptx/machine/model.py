"""A GPU as its file describes it; GPUs are found by name or path."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Annotated

from kernbench.common.errors import MachineError
from kernbench.machine.description import Description
from kernbench.machine.keys import LABEL, SHAPE, Choice, Text
from kernbench.machine.library import Library
from kernbench.ptx.machine.figures import SOURCES, Figure
from kernbench.ptx.machine.tables import (
    L1,
    L2,
    Barriers,
    Chip,
    Clock,
    Cluster,
    Copies,
    Hbm,
    Issue,
    Launch,
    Pipes,
    Shared,
    Sm,
    Tensor,
)

KIND = "ptx"
NOT_VALIDATED = "not validated"
_ABOVE_ZERO = (
    "chip.sms", "chip.gpcs", "chip.cluster", "chip.l2_halves", "clock.most", "clock.products", "sm.sub_cores",
    "sm.warps", "sm.ctas", "sm.registers", "sm.register_unit", "sm.shared_unit", "issue.interval",
    "shared.bytes_per_cycle", "shared.sub_core_bytes_per_cycle", "shared.banks", "shared.queue", "l1.bytes_per_cycle",
    "l1.line", "l1.sector", "l1.gone", "l2.capacity", "l2.turnover", "l2.bytes_per_cycle", "l2.lines_per_cycle",
    "l2.sm_bytes_per_cycle",
    "l2.write_bytes_per_cycle", "l2.sm_write_bytes_per_cycle", "l2.atomic_lines", "l2.atomic_units", "hbm.bandwidth",
    "hbm.read_share", "hbm.write_share", "hbm.copy_share", "hbm.granule", "hbm.scattered", "hbm.rewritten",
    "tensor.mma",
)  # fmt: skip


@dataclass(frozen=True)
class Gpu(Description):
    """A GPU: its structure (shape keys) and the speed of its parts (rate keys), each figure with its source."""

    whole = "h200"
    called = "gpu"
    above_zero = _ABOVE_ZERO

    name: Annotated[str, Text("", LABEL, "what the GPU is called", 64)]
    kind: Annotated[str, Choice("", SHAPE, "the target that runs on it", (KIND,))]
    arch: Annotated[str, Text("", SHAPE, "the architecture code is compiled for", 16)]
    predictions: Annotated[
        str, Choice("", LABEL, "whether times were held to a GPU of this kind", ("validated", NOT_VALIDATED))
    ]
    calibrated: Annotated[str, Text("", LABEL, "with which driver and assembler its figures were measured", 120)]
    chip: Chip
    clock: Clock
    sm: Sm
    issue: Issue
    pipes: Pipes
    shared: Shared
    barriers: Barriers
    l1: L1
    l2: L2
    hbm: Hbm
    copies: Copies
    tensor: Tensor
    cluster: Cluster
    launch: Launch

    @classmethod
    def conflicts(cls, values: Mapping[str, object]) -> list[str]:
        """Figures that are 0 although the model divides by them."""
        found = []
        for name in _ABOVE_ZERO:
            table, _, key = name.partition(".")
            if getattr(values.get(table), key, 1) == 0:
                found.append(f"{name} = 0: out of range. Allowed: more than 0")
        return found

    @property
    def validity(self) -> str:
        """`predictions`, if all figures are those of a bundled GPU; otherwise that predictions are not validated."""
        if self.predictions == NOT_VALIDATED or (self.name in bundled() and load(self.name) is self):
            return self.predictions
        # a file of another name may have the same figures
        return self.predictions if self.hash in _validated() else NOT_VALIDATED

    @property
    def hash(self) -> str:
        """Twelve hex digits, equal for equal values of everything but labels; sources do not count."""
        content = {
            name: float(value) if isinstance(value, Figure) else key.data(value)
            for name, key, value in self.entries()
            if key.role != LABEL
        }
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    def figures(self) -> dict[str, Figure]:
        """Every figure by its dotted name."""
        return {name: value for name, _, value in self.entries() if isinstance(value, Figure)}

    def sources(self) -> dict[str, int]:
        """The number of figures from each kind of source."""
        found = [figure.source for figure in self.figures().values()]
        return {source: found.count(source) for source in SOURCES}

    def with_figures(self, figures: Mapping[str, Figure], calibrated: str) -> "Gpu":
        """This GPU with some figures replaced; `calibrated` names the driver and assembler they were measured with."""
        return self.override({**figures, "calibrated": calibrated})


_LIBRARY = Library(Gpu, "kernbench.ptx", "gpus")


@lru_cache(maxsize=1)
def _validated() -> frozenset[str]:
    """Hashes of the bundled GPUs whose predicted times were validated on hardware."""
    found = [load(name) for name in bundled()]
    return frozenset(gpu.hash for gpu in found if gpu.predictions != NOT_VALIDATED)


def bundled() -> list[str]:
    """The names of the bundled GPUs."""
    return _LIBRARY.bundled()


def load(gpu: "str | os.PathLike[str] | Gpu") -> Gpu:
    """The GPU of a bundled name or a TOML file; a `Gpu` is returned as it is.

    A file may say `extends = "h200"` (or a path relative to it) and give only the keys that differ.
    """
    return _LIBRARY.load(gpu)


def is_gpu(gpu: str | os.PathLike[str]) -> bool:
    """Whether a name or file describes a GPU; False also for files that cannot be read."""
    try:
        return _LIBRARY.kind_of(gpu) == KIND
    except MachineError:
        return False


def unfit(arch: str, gpu: Gpu) -> str:
    """Why code for an architecture does not run on a GPU; empty if it does.

    `sm_90a` runs on 9.0 alone, `sm_100f` on 10.0 and later ones of its family, `sm_80` on 8.0 and all later ones.
    """
    wanted, there = (re.fullmatch(r"sm_(\d+)([af]?)", one) for one in (arch, gpu.arch))
    if wanted is None or there is None:
        return f"the kernel is for {arch}, and {gpu.name} is {gpu.arch}"
    number, own = int(wanted[1]), int(there[1])
    fits = own == number if wanted[2] == "a" else own >= number
    if wanted[2] == "f":
        fits = fits and own // 10 == number // 10
    return "" if fits else f"the kernel is for {arch}, and {gpu.name} is {gpu.arch}: choose another GPU"
