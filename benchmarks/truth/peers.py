"""Kernels beside their peers on a GPU: how both are timed, and how rows are printed and written."""

import argparse
import json
import subprocess
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from .measure import ColdDevice, repeated

FLUSH_BYTES = 256 << 20
LAUNCHES, WARM_UPS = 40, 10
# a difference from float64 above which a time does not count
MOST_DIFFERENCE = 2e-2
Row = dict[str, Any]


class Flush:
    """Fills L2 with what nobody asks for."""

    def __init__(self, torch: Any, reads: bool):
        self.reads = reads
        self.memory = torch.zeros(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")

    def __call__(self) -> None:
        if self.reads:
            self.memory.sum()
        else:
            self.memory.fill_(1)


class FlushedDevice(ColdDevice):
    """A GPU whose L2 is flushed as a peer's is; torch and this device use one stream."""

    flush: Flush

    def _submit(self, function: Any, config: Any, packed: list[bytes], repetitions: int) -> list[Any]:
        events: list[Any] = []
        for _ in range(repetitions):
            self.flush()
            events += super(ColdDevice, self)._submit(function, config, packed, 1)
        return events


def our_time(device: FlushedDevice, kernel: Any, ctas: int, given: list[object]) -> float:
    """Microseconds of a launch of ours, the median."""
    run = repeated(device, kernel.build(), ctas, kernel.threads, given, kernel.shared_bytes)
    if run.findings:
        raise RuntimeError(str(run.findings[0]))
    return float(median(device.times)) / 1e3


def add_peers(row: Row, torch: Any, device: FlushedDevice, call: Callable[[], Any]) -> None:
    """Microseconds of torch's attention in `call` by each implementation, measured as ours is; or why it refuses."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION)):
        try:
            with sdpa_kernel(backend):
                row[f"{name}_us"] = peer_time(torch, device, call)
        except RuntimeError as error:
            row[f"{name}_refused"] = str(error).splitlines()[0][:80]


def peer_time(torch: Any, device: FlushedDevice, call: Callable[[], Any]) -> float:
    """Microseconds of a call between two events, the median; L2 is flushed before each."""
    times = []
    for _ in range(LAUNCHES):
        device.flush()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return float(median(times[WARM_UPS:]))


def measured_on(torch: Any) -> Row:
    """When and on what rows were measured: date, GPU, driver, clocks now and at most."""
    asked = ("driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "power.limit")
    words = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(asked)}", "--format=csv,noheader"]
    try:
        said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
        found = dict(zip(asked, (one.strip() for one in said.split(",")), strict=False))
    except (OSError, subprocess.SubprocessError) as error:
        found = {"nvidia-smi": f"{type(error).__name__}: {error}"[:80]}
    name = torch.cuda.get_device_name(0)
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), "gpu": name, "torch": torch.__version__, **found}


def show(
    about: str | None, problems: Iterable[Any], measured: Callable[[Any, FlushedDevice, Any], Row],
    line: Callable[[str, Row], str],
) -> None:  # fmt: skip
    """Measure each problem, print a line for it, and write its row where that is asked for.

    `line` says what follows each time of a row by its name.
    """
    import torch

    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--out", type=Path, help="write rows here as JSON lines, too")
    parser.add_argument("--flush", choices=("write", "read"), default="write", help="how L2 is filled before a launch")
    given = parser.parse_args()
    device = FlushedDevice()
    device.flush = Flush(torch, given.flush == "read")
    _add(given.out, {"about": measured_on(torch)})
    for problem in problems:
        row = {"problem": problem.name, "flushed_by_reading": device.flush.reads, **measured(torch, device, problem)}
        if row["difference"] > MOST_DIFFERENCE:
            row = {name: value for name, value in row.items() if not name.startswith("ours")} | {"wrong": True}
        times = [
            f"{name.removesuffix('_us')} {row[name]:.1f} us{line(name, row)}" for name in row if name.endswith("_us")
        ]
        wrong = "WRONG, " if "wrong" in row else ""
        print(f"{problem.name}: {wrong}{', '.join(times)}, off by {row['difference']:.1e}", flush=True)
        _add(given.out, row)


def _add(file: Path | None, row: Row) -> None:
    if file is not None:
        with file.open("a") as target:
            target.write(json.dumps(row) + "\n")
