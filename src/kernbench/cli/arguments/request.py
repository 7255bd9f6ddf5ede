"""What a command runs: a bench, its panels, with values and options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernbench.bench import Bench, default_cases, describe, find, folder_bench, limit_of, platform_chip, run_bench
from kernbench.bench.definition.machines import machine_parameter
from kernbench.common.errors import BenchError, unknown
from kernbench.result.reading import Data
from kernbench.result.run import Run
from kernbench.targets.registry import MACHINE


@dataclass(frozen=True)
class Request:
    """Panels of a bench, settings that override theirs, and options of `run_bench`."""

    bench: Bench
    panels: list[str | None]
    values: Data
    options: Data

    @property
    def shapes_only(self) -> bool:
        """Whether the run carries no data."""
        size = self.options["size"]
        return bool(self.options["shapes_only"] or (size is not None and self.bench.sizes[size].shapes_only))

    def title(self, panel: str | None) -> str:
        """The title of a run of the panel."""
        return panel or self.bench.name

    def run(self, panel: str | None, settings: dict[str, object] | None = None, **more: Any) -> Run:
        """Run one panel, with further settings and options."""
        return run_bench(self.bench, panel, {**self.values, **(settings or {})}, **self.options, **more)

    def limit(self, panel: str | None, settings: dict[str, object]) -> int:
        """Picoseconds that no schedule of a panel can beat, by the bench's limits; 0 without them."""
        return limit_of(self.bench, panel, {**self.values, **settings}, self.options["size"])


def chosen(
    name: str | None, panel: str | None, kernels: Path | None, golden: Path | None, cases: list[str]
) -> tuple[Bench, list[str | None]]:
    """The bench that is named, and the panels to run."""
    if kernels is None and golden is None and not cases:
        if name is None:
            raise BenchError("which bench? Give its name or file, or --kernels and --golden; kernbench list shows all")
        bench = find(name)
        return bench, [panel] if panel else list(bench.panels) or [None]
    if name is not None or kernels is None or golden is None:
        raise BenchError(
            "a folder of kernels is run with --kernels FOLDER and --golden FILE, both, and no bench's name"
        )
    bench = folder_bench(kernels, golden, platform_chip(panel or "sim"))
    wanted = list(bench.panels) if "all" in cases else cases or default_cases(bench)
    for one in wanted:
        if one not in bench.panels:
            raise BenchError(unknown("case", one, bench.panels))
    return bench, [*wanted]


def parse_settings(
    bench: Bench, settings: list[str], machine: str | None = None, **short: str | None
) -> dict[str, str]:
    """key=value texts as a dictionary, with the parameters that have an option of their own."""
    values: Data = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BenchError(f"--set {text!r}: key=value is wanted, such as --set n_ranks=4")
        values[key.strip()] = value.strip()
    known = {row.name for row in describe(bench.parameters)}
    short[machine_parameter(known) or MACHINE] = machine
    for name, chosen in short.items():
        if chosen is not None and name not in known:
            raise BenchError(f"bench {bench.name} has no parameter {name}")
        if chosen is not None:
            values[name] = chosen
    return values
