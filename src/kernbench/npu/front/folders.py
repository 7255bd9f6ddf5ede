"""A folder of npu kernels against a golden file: a bench like any other, with a panel for each case."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kernbench.bench.definition.bench import Bench, Expected
from kernbench.bench.definition.inputs import ShapesOnly
from kernbench.bench.definition.parameters import param
from kernbench.bench.discovery.golden_file import GoldenFile, load_golden_file
from kernbench.bench.discovery.modules import importable
from kernbench.common.dtypes import Array, as_array
from kernbench.common.errors import BenchError, unknown
from kernbench.npu.front.kernel_folder import KernelFolder, load_kernel_folder
from kernbench.npu.isa.model import ChipModel
from kernbench.result.reading import Data
from kernbench.result.run import Run

# machine files by platform; the reference's names of its simulators are accepted, too
DEFAULT_MACHINE = "a2a3"
PLATFORMS = {"sim": "a2a3", "a2a3sim": "a2a3", "a5sim": "a5"}
_HARDWARE = ("a2a3", "a5")


@dataclass(frozen=True)
class Parameters:
    """The case, and the chip."""

    case: str = param("", "a case of the golden file")
    chip: str = param(DEFAULT_MACHINE, "bundled chip or TOML path")


def platform_machine(platform: str) -> str:
    """The chip file of a platform."""
    if platform in _HARDWARE:
        raise BenchError(f"platform {platform} is the chip itself, which cannot be reached from here: {platform}sim")
    if platform not in PLATFORMS:
        raise BenchError(f"{unknown('platform', platform, PLATFORMS)} Another chip: --set chip=FILE.toml")
    return PLATFORMS[platform]


def folder_bench(kernels: Path, golden: Path, machine: str) -> Bench:
    """The bench of a folder of kernels and a golden file."""
    path, file = kernels.resolve(), golden.resolve()
    with importable(path, file.parent):
        folder = load_kernel_folder(path)
        cases = load_golden_file(file)
    runner = _Runner(folder, cases)
    name = "".join(c if c.isalnum() else "_" for c in path.name)
    return Bench(
        name=name if name.isidentifier() else f"kernels_{name}",
        summary=f"{folder.orchestrate.__name__} of {kernels}, judged by {golden}",
        parameters=Parameters,
        inputs=runner.inputs,
        golden=runner.golden,
        host=runner.host,
        launch=runner.launch,
        panels={case: {"case": case, "chip": machine} for case in cases.cases},
        file=str(file),
    )


class _Runner:
    """The functions of the bench."""

    def __init__(self, folder: KernelFolder, golden_file: GoldenFile):
        self.folder = folder
        self.golden_file = golden_file

    def _importable(self) -> AbstractContextManager[None]:
        return importable(self.folder.path, self.golden_file.path.parent)

    def inputs(self, p: Parameters, rng: np.random.Generator | ShapesOnly) -> Data:
        """The inputs that the golden file generates for the case."""
        seed = 0 if isinstance(rng, ShapesOnly) else int(rng.integers(2**32))
        with self._importable():
            return self.golden_file.inputs(p.case, seed)

    def golden(self, p: Parameters, x: Mapping[str, Array | float]) -> dict[str, Expected]:
        """The outputs as the golden file computes them, with its tolerance."""
        with self._importable():
            expected = self.golden_file.expected(p.case, x)
        return {
            name: Expected(array.astype(np.float64), allowed=self.golden_file.allowed)
            for name, array in expected.items()
        }

    def host(self, p: Parameters, chip: Any) -> object:
        """The chip with the settings of the folder."""
        # greenlet is needed to launch, not to look at a folder
        from kernbench import npu

        wanted = self.folder.changes.get("clusters.count", 0)
        if wanted > chip.clusters.count:
            raise BenchError(
                f"block_dim {wanted} of {self.folder.path}: chip {chip.name} has {chip.clusters.count} clusters"
            )
        kernels = self.folder.built(_family(chip)).kernels
        return npu.Chip(chip.override(self.folder.changes), kernels=kernels)

    def launch(self, p: Parameters, x: Mapping[str, object], *, torch: Any) -> Run:
        """The orchestration on the inputs; outputs have the names of the golden file."""
        outputs = self.golden_file.outputs(x)
        given = {name: as_array(v) if hasattr(v, "shape") else v for name, v in x.items()}
        folder = self.folder.built(_family(torch.machine), list(given))
        arguments = folder.arguments(given, self.golden_file.cases[p.case])
        with self._importable():
            run: Run = torch.launch(folder.orchestrate, **arguments)
        named = folder.input_names(given)
        found = {named[name]: array for name, array in run.outputs.items() if named.get(name) in outputs}
        unwritten = [name for name in outputs if name not in found]
        if run.outputs and unwritten:
            raise BenchError(
                f"no task writes {', '.join(unwritten)}: the orchestration passes it to no task as OUT or INOUT"
            )
        return replace(run, outputs=found)


def _family(chip: ChipModel) -> str:
    """The family of the chip, a2a3 or a5, for sources that are compiled differently for each."""
    return "a5" if chip.isa.cross_core == "single" else "a2a3"
