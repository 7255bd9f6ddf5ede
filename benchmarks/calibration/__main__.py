"""`python -m benchmarks.calibration measure OUT.jsonl`: the microbenchmarks on the GPU of this machine.

`check` runs every kernel at a small size on the emulator; `fit RESULTS.jsonl MACHINE.toml PAGE.md` fits the figures
of a GPU's file and writes it, with a page of what was fitted. `make calibrate` measures and fits.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .registry import FAMILIES, cases

SECONDS = 400


def machine_row(device: Any) -> dict[str, Any]:
    """What the figures were measured with: no names of hosts or folders."""
    from kernbench.ptx.devices.cuda_driver import Driver

    driver = Driver()
    handle = driver.call("cuDeviceGet", device.index)
    words = ("MULTIPROCESSOR_COUNT", "L2_CACHE_SIZE", "CLOCK_RATE", "MEMORY_CLOCK_RATE", "GLOBAL_MEMORY_BUS_WIDTH")
    return {
        "machine": {
            "gpu": device.name,
            # the emulator's own driver: nothing measured there may become a figure
            "emulated": "KERNBENCH_DRIVER" in os.environ,
            "arch": device.arch,
            "cuda_of_driver": int(driver.call("cuDriverGetVersion")),
            "driver": _said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
            "ptxas": _said("ptxas", "--version").rpartition("release ")[2],
            **{word.lower(): driver.attribute(handle, word) for word in words},
        }
    }


def _said(*command: str) -> str:
    """The last line a program prints; empty where there is none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    # ptxas names its build last
    lines = [line for line in done.stdout.splitlines() if "Build" not in line]
    return lines[-1].strip() if lines else ""


def measure(out: Path, families: list[str], seconds: float) -> None:
    """Each family in a process of its own: one that loses the GPU takes no other with it."""
    deadline = time.time() + seconds
    out.write_text("", encoding="utf-8")
    for family in families:
        left = deadline - time.time()
        if left <= 0:
            break
        command = [sys.executable, "-m", "benchmarks.calibration", "family", str(out), family, f"{left:.0f}"]
        try:
            subprocess.run(command, check=False, timeout=left + 60)
        except subprocess.TimeoutExpired:
            sys.stderr.write(f"{family}: did not end in time\n")


def family(out: Path, name: str, seconds: float) -> None:
    """One family on the GPU, its rows appended to the file."""
    from kernbench import ptx
    from kernbench.ptx.devices.cuda_driver import Driver

    from .cold import brief_rows, cold_rows
    from .launch_gaps import Queue, launch_gaps
    from .measure import Bench, measure_all, write
    from .together import together_rows

    device = ptx.CudaDevice(0)
    about = machine_row(device)
    with out.open("a", encoding="utf-8") as file:
        if file.tell() == 0:
            write(file, about)
        bench = Bench(device, about["machine"]["multiprocessor_count"])
        measure_all(bench, cases([name]), file, time.monotonic() + seconds)
        if name == "launches":
            for row in launch_gaps(device):
                write(file, row)
            for row in cold_rows(Queue(Driver()), bench.sms):
                write(file, row)
        if name == "cold":
            for row in brief_rows(Queue(Driver()), bench.sms):
                write(file, row)
            for row in together_rows(Queue(Driver()), bench.sms):
                write(file, row)


def check() -> int:
    """Every kernel on the emulator; how many were wrong or unsafe."""
    from .emulated import problem

    wrong = 0
    for case in cases():
        found = problem(case)
        if found:
            wrong += 1
            sys.stdout.write(f"{case.name}: {found}\n")
    sys.stdout.write(f"{wrong} wrong or unsafe\n")
    return wrong


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("out", type=Path)
    one.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    one.add_argument("--seconds", type=float, default=SECONDS)
    one = commands.add_parser("family")
    one.add_argument("out", type=Path)
    one.add_argument("name", choices=list(FAMILIES))
    one.add_argument("seconds", type=float)
    commands.add_parser("check")
    one = commands.add_parser("fit")
    for name in ("results", "machine", "page"):
        one.add_argument(name, type=Path)
    one = commands.add_parser("page")
    one.add_argument("page", type=Path)
    given = parser.parse_args()
    if given.command == "measure":
        measure(given.out, given.families, given.seconds)
    elif given.command == "family":
        family(given.out, given.name, given.seconds)
    elif given.command == "check":
        return min(check(), 1)
    else:
        return fitted(given)
    return 0


def fitted(given: argparse.Namespace) -> int:
    """The machine file and the page from results, or the page without any; what is wrong in a sentence."""
    from kernbench.common.errors import KernbenchError
    from kernbench.ptx.machine import load

    from .page import fit_files, page

    if given.command == "page":
        given.page.write_text(page(load("h200"), None, None), encoding="utf-8")
        return 0
    try:
        found = fit_files(given.results, given.machine, given.page)
    except KernbenchError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{len(found.fitted)} figures measured; {given.machine} and {given.page} written\n")
    for name, why in found.missing.items():
        sys.stdout.write(f"not fitted: {name}: {why}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
