"""Folders of kernels as benches, made by the target of the kernels."""

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from kernbench.bench.definition.bench import Bench
from kernbench.bench.discovery.golden_file import GoldenFile
from kernbench.common.errors import BenchError
from kernbench.targets import registry


class KernelFolders(Protocol):
    """The interface of the module `folders` of a target's registration."""

    # the machine that a folder is run on by default
    DEFAULT_MACHINE: str

    def folder_bench(self, kernels: Path, golden: Path, machine: str) -> Bench:
        """The bench of a folder and a golden file: a panel for each case, all on this machine."""

    def platform_machine(self, platform: str) -> str:
        """The machine of a platform's name; a BenchError if this target has no such platform."""


def folder_bench(kernels: Path, golden: Path, chip: str = "") -> Bench:
    """The bench of a folder of kernels and a golden file, on the target that owns the machine `chip`."""
    rows = _listed()
    # looking for machines imports targets, which is not needed for a single one
    owning = [row for row in rows if len(rows) > 1 and chip and registry.find(row.name).machines.owns(chip)]
    folders = _folders((owning or rows)[0])
    return folders.folder_bench(kernels, golden, chip or folders.DEFAULT_MACHINE)


def platform_chip(platform: str) -> str:
    """The chip of a platform's name."""
    refused: list[BenchError] = []
    for row in _listed():
        try:
            return _folders(row).platform_machine(platform)
        except BenchError as error:
            refused.append(error)
    raise refused[0]


def default_cases(bench: Bench) -> list[str]:
    """The cases that run by default."""
    golden = getattr(getattr(bench.inputs, "__self__", None), "golden_file", None)
    return list(golden.default) if isinstance(golden, GoldenFile) else list(bench.panels)


def _listed() -> list[registry.Listed]:
    """The targets that support folders of kernels; they have machines."""
    return [row for row in registry.listed() if row.folders and row.machine]


def _folders(row: registry.Listed) -> KernelFolders:
    return cast(KernelFolders, import_module(row.folders))
