"""All panels of the PTX benches, and all mutants of their kernels, on 1, 2 and 16 processes: the same to the bit.

Every launch of a panel is compared: outputs, findings, counts, views and the order of events. A mutant has one
synchronisation instruction dropped, weakened or wrong by a little (`kernbench.ptx.mutation`); its launches must find
the same on any number of processes, word for word. Batches are made small, so that a few CTAs make several, and every
launch is worth dividing; panels run with batches of the usual size as well, in pieces.

    python benchmarks/ptx_jobs_of_benches.py --processes 16
    python benchmarks/ptx_jobs_of_benches.py --only mutants --every 20
"""

import argparse
import importlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from kernbench.bench import find, run_bench
from kernbench.common.errors import KernbenchError
from kernbench.ptx.devices.device import EmulatedDevice
from kernbench.ptx.devices.host import Host
from kernbench.ptx.emulator.engine import launch as launching
from kernbench.ptx.emulator.engine import splitting
from kernbench.ptx.mutation import mutations
from kernbench.ptx.target import PtxTarget
from kernbench.ptx.text.module import Kernel
from kernbench.result.run import Run, Status
from kernbench.safety.budget import Budget
from kernbench.safety.jobs import VARIABLE

# tests import this file as a part of the folder
sys.path.insert(0, str(Path(__file__).parent.parent))
differences: Any = importlib.import_module("benchmarks.ptx_jobs").differences

ATTENTION, CHUNKS = "batched_incremental_attention", "gated_delta_rule_chunk_output"
# lanes of a batch: a few CTAs, and as usual
NARROW, USUAL = 512, launching._LANES
# thirteen chunks, five tails among them, of two heads, by four blocks: each stage is used again three times
MANY_CHUNKS: dict[str, Any] = {"lengths": (128, 64, 1, 0, 65, 64, 130, 30, 64, 5), "heads": 1, "value_heads": 2}
MANY_CHUNKS |= {"key_size": 64, "value_size": 64, "sms": 4}
MUTATED: tuple[tuple[str, str | None, dict[str, Any]], ...] = (
    (CHUNKS, None, {**MANY_CHUNKS, "kernel": "sm_90a"}),
    (CHUNKS, None, {**MANY_CHUNKS, "kernel": "sm_100a"}),
    *((ATTENTION, panel, {}) for panel in ("multi_warp", "shared_kv", "split_kv")),
)
BUDGET = Budget(steps=400_000, seconds=120.0)


@dataclass(frozen=True)
class Case:
    """A panel of a bench, with batches of so many lanes; `mutant` is the number of a change of its first kernel."""

    bench: str
    panel: str | None
    settings: dict[str, Any] = field(default_factory=dict)
    lanes: int = NARROW
    mutant: int | None = None

    def __str__(self) -> str:
        of = self.panel or self.settings.get("kernel", "")
        changed = "" if self.mutant is None else f", mutant {self.mutant}"
        return f"{self.bench} {of}, {self.lanes} lanes{changed}"


@dataclass
class Launches:
    """What the launches of one run of a panel gave, how they were divided, and what was refused."""

    runs: list[Run] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    refused: str = ""

    @property
    def spoke(self) -> bool:
        """Whether anything was found, or stopped."""
        return bool(self.refused) or any(run.findings or run.status is not Status.FINISHED for run in self.runs)


@contextmanager
def _settings(case: Case, jobs: int) -> Iterator[None]:
    """Every launch is worth dividing, and none is recorded, which is done on one core."""
    with (
        mock.patch.object(splitting, "WORTH", 0.0),
        mock.patch.object(splitting, "FIXED_THREADS", 0),
        mock.patch.object(launching, "_LANES", case.lanes),
        mock.patch.object(PtxTarget, "record_for_time", return_value=None),
        mock.patch.dict(os.environ, {VARIABLE: str(jobs)}),
    ):
        splitting.forget()
        yield


def launches(case: Case, jobs: int) -> Launches:
    """Run a panel on so many processes."""
    found = Launches()
    perform, launch = EmulatedDevice._perform, Host.launch

    def performed(device: EmulatedDevice, *given: Any, **more: Any) -> Any:
        run = perform(device, *given, **more)
        found.parts.append(device.division.parts)
        return run

    def launched(host: Host, kernel: Kernel, *given: Any, **more: Any) -> Run:
        found.kernels.append(kernel)
        if case.mutant is not None:
            more["budget"] = BUDGET
            if len(found.kernels) == 1:
                kernel = mutations(kernel)[case.mutant].mutant
        run = launch(host, kernel, *given, **more)
        found.runs.append(run)
        return run

    with (
        _settings(case, jobs),
        mock.patch.object(EmulatedDevice, "_perform", performed),
        mock.patch.object(Host, "launch", launched),
    ):
        try:
            run_bench(find(case.bench), case.panel, case.settings)
        except KernbenchError as error:
            found.refused = str(error)
    return found


def compare(many: tuple[int, ...], case: Case) -> tuple[Case, Counter[str], list[str]]:
    """Run a case on one process and on several; what was counted, and what differs."""
    alone, tally, wrong = launches(case, 1), Counter[str](), []
    tally["found" if alone.spoke else "nothing found"] += 1
    for jobs in many:
        there = launches(case, jobs)
        tally[f"launches on {jobs}"] += len(there.runs)
        tally[f"divided on {jobs}"] += sum(parts > 1 for parts in there.parts)
        found = [name for pair in zip(alone.runs, there.runs, strict=False) for name in differences(*pair)]
        if (alone.refused, len(alone.runs)) != (there.refused, len(there.runs)):
            found.append("what is refused")
        if found:
            wrong.append(f"{case}, {jobs} jobs: {', '.join(found)} differ")
    return case, tally, wrong


def panels() -> list[Case]:
    """All panels of all PTX benches."""
    named = [(bench, panel) for bench in (ATTENTION, CHUNKS) for panel in find(bench).panels]
    return [Case(bench, panel, {}, lanes) for bench, panel in named for lanes in (NARROW, USUAL)]


def mutants(every: int, among: Sequence[tuple[str, str | None, dict[str, Any]]] = MUTATED) -> list[Case]:
    """All mutants (or every n-th) of some kernels of the benches."""
    found = []
    for bench, panel, settings in among:
        kernel = launches(Case(bench, panel, settings), 1).kernels[0]
        numbers = range(0, len(mutations(kernel)), every)
        found += [Case(bench, panel, settings, mutant=number) for number in numbers]
    return found


def report(name: str, cases: list[Case], many: tuple[int, ...], processes: int) -> int:
    """Compare all cases and print what came of it; how many differ."""
    tally, wrong, by_kernel = Counter[str](), 0, Counter[str]()
    with ProcessPoolExecutor(processes) as pool:
        for case, counts, lines in pool.map(partial(compare, many), cases):
            tally += counts
            by_kernel[f"{case.bench} {case.panel or case.settings.get('kernel')}: {'found' * counts['found']}"] += 1
            wrong += len(lines)
            for line in lines:
                print(line, flush=True)
    print(f"{name}: {len(cases)} cases; {', '.join(f'{key} {count}' for key, count in sorted(tally.items()))}")
    if name == "mutants":
        for key, count in sorted(by_kernel.items()):
            print(f"  {key.removesuffix(': ')}{'' if key.endswith('found') else ', nothing found'}: {count}")
    numbers = ", ".join(map(str, (1, *many[:-1]))) + f" and {many[-1]}"
    print(f"  the same on {numbers} processes" if not wrong else f"  {wrong} cases DIFFER", flush=True)
    return wrong


def main() -> int:
    """Compare panels and mutants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("panels", "mutants"))
    parser.add_argument("--every", type=int, default=1, help="every n-th mutant only")
    parser.add_argument("--processes", type=int, default=1, help="cases that run at once")
    given = parser.parse_args()
    wrong = 0
    if given.only != "mutants":
        wrong += report("panels", panels(), (2, 16), given.processes)
    if given.only != "panels":
        wrong += report("mutants", mutants(given.every), (2, 16), given.processes)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
