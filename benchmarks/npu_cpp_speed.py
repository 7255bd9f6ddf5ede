"""What kernels in C++ cost against the same kernels in Python: the four small cases of paged attention, staged.

    python benchmarks/npu_cpp_speed.py CHECKOUT [--platform a2a3]

CHECKOUT is a copy of the reference's repository, whose staged folder is run as it lies; the Python form is the bench
`paged_attention` with contexts of the same lengths. Both launch, check and time; neither inputs nor goldens count, and
everything is compiled before. Seconds are of processor time, of this process and those it began, the mean of ten
runs; the ratio is what may be compared between computers. The aim is at most 3.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernbench import npu
from kernbench.npu.cpp.process import end_idle
from kernbench.npu.scene.cases import Case, cases_of
from kernbench.npu.scene.modules import offered
from kernbench.npu.scene.sources import changes_of, kernels_of, orchestration_of, value_of

sys.path.insert(0, str(Path(__file__).parent.parent))
paged: Any = importlib.import_module("tests.npu.paged")

AIM, RUNS = 3.0, 10
FOLDER = "examples/{chip}/tensormap_and_ringbuffer/paged_attention"


def seconds(run: Callable[[], None]) -> float:
    """Processor time of one of some runs, of this process and of those that it began."""
    # the system counts a process when it has ended
    end_idle()
    before = sum(os.times()[:4])
    for _ in range(RUNS):
        run()
    end_idle()
    return (sum(os.times()[:4]) - before) / RUNS


def in_cpp(case: Case) -> Callable[[], None]:
    """A launch of a case as it lies."""
    with offered(case.file):
        given = case.test().generate_args(case.params)
        arguments = [value_of(spec) for spec in given.specs]
        orchestrate, kernels = orchestration_of(case, given.specs), kernels_of(case)

    def run() -> None:
        chip = npu.Chip(case.chip, changes_of(case), kernels=kernels)
        found = chip.launch(orchestrate, *arguments)
        assert found.safe, found.findings
        chip.retime(found)

    return run


def in_python(lengths: list[int], chip: str) -> Callable[[], None]:
    """The same with kernels of Python."""
    arguments = paged.problem(lengths)

    def run() -> None:
        machine = npu.Chip(chip)
        found = machine.launch(paged.FORMS["staged"].orchestrate, *arguments)
        assert found.safe, found.findings
        machine.retime(found)

    return run


def lengths_of(case: Case) -> list[int]:
    """Lengths of the contexts of a case."""
    given = case.params.get("context_lens_list")
    if isinstance(given, list):
        return given
    return [int(str(case.params["context_len"]))] * int(str(case.params["batch"]))


def main() -> int:
    """Measure both; whether the aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--platform", default="a2a3", choices=("a2a3", "a5"))
    given = parser.parse_args()
    (file,) = (given.checkout / FOLDER.format(chip=given.platform)).resolve().glob("test_*.py")
    small = [case for case in cases_of(file, given.platform, ["all"]) if case.params.get("head_dim") == 16]
    totals = [0.0, 0.0]
    for case in small:
        lengths = lengths_of(case)
        runs = in_cpp(case), in_python(lengths, given.platform)
        for run in runs:
            run()
        times = [seconds(run) for run in runs]
        totals = [total + time for total, time in zip(totals, times, strict=True)]
        print(f"{case.name} {lengths}: C++ {times[0]:.3f} s, Python {times[1]:.3f} s, {times[0] / times[1]:.2f} x")
    ratio = totals[0] / totals[1]
    both = f"C++ {totals[0]:.3f} s, Python {totals[1]:.3f} s"
    print(f"{len(small)} cases: {both}: {ratio:.2f} x (aim: at most {AIM:g} x)")
    return int(ratio > AIM)


if __name__ == "__main__":
    sys.exit(main())
