"""How many launches of public programs leave the same bytes on a GPU and on the emulator, and why the others do not.

    python benchmarks/ptx_agreement.py program.py other.py            # programs of yours, each run unchanged
    python benchmarks/ptx_agreement.py --list programs.txt            # a command line in each line
    python benchmarks/ptx_agreement.py "python -m pytest -x test_rms_norm.py" --all-configs

Every launch is run on the first GPU and on the emulator with exact sums (`kernbench exec --compare`). The aim is that
95 % of the launches are identical, and that each other one is explained: the order of threads shows, the assembler
fused multiplications and additions, or the instruction is named at which they part. Exit code 0 if so, 1 if not, 2
where a program could not be run. Nothing of the programs is kept.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, cast

from kernbench.ptx.comparing.verdicts import FUSED, IDENTICAL, NOT_COMPARED, ORDER, OUTCOMES

AIM = 0.95


class Verdict(TypedDict):
    """The verdict on a launch, as `kernbench exec --json` writes it."""

    outcome: str
    reason: str
    first: dict[str, object] | None


class Run(TypedDict, total=False):
    """A launch of the document."""

    number: int
    agreement: Verdict


class Kernel(TypedDict):
    """A kernel of the document."""

    kernel: str
    runs: list[Run]


@dataclass
class Counted:
    """Launches of all programs by outcome, kernels, and those that differ without an explanation."""

    outcomes: Counter[str] = field(default_factory=Counter)
    kernels: set[str] = field(default_factory=set)
    # instruction, or reason -> launches; and launches that nothing explains
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)

    @property
    def compared(self) -> int:
        """Launches of which something is known."""
        return sum(self.outcomes.values()) - self.outcomes[NOT_COMPARED]

    @property
    def share(self) -> float:
        """The part of them that is identical."""
        return self.outcomes[IDENTICAL] / self.compared if self.compared else 0.0

    @property
    def reached(self) -> bool:
        """Whether the aim is."""
        return self.share >= AIM and not self.unexplained

    def add(self, program: str, kernels: Iterable[Kernel]) -> None:
        """The launches of one program."""
        for kernel in kernels:
            self.kernels.add(kernel["kernel"])
            for run in kernel["runs"]:
                if "agreement" in run:
                    self._add(f"{program}: {kernel['kernel']}, launch {run['number']}", run["agreement"])

    def _add(self, name: str, verdict: Verdict) -> None:
        outcome, first = verdict["outcome"], verdict["first"]
        self.outcomes[outcome] += 1
        if outcome == IDENTICAL:
            return
        if first is not None:
            self.explained[str(first["text"]).split()[0]] += 1
        elif outcome == ORDER:
            self.explained[verdict["reason"].split("`: ")[-1]] += 1
        elif outcome == FUSED:
            self.explained["a multiplication and an addition that the assembler fused"] += 1
        else:
            self.unexplained.append(f"{name}: {outcome}: {verdict['reason'] or 'no reason is known'}")


def compared(program: str, device: str, options: Sequence[str]) -> list[Kernel] | str:
    """The kernels of a program's document, or why there is none."""
    words = shlex.split(program)
    words = [sys.executable, *words] if words[0].endswith(".py") else words
    with tempfile.TemporaryDirectory(prefix="kernbench-agreement-") as folder:
        file = Path(folder, "out.json")
        command = [sys.executable, "-m", "kernbench", "exec", "--no-checks", "--compare", device, "--json", str(file)]
        done = subprocess.run([*command, *options, "--", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if not file.exists():
            return done.stderr.decode(errors="replace").strip()[-500:] or f"exit code {done.returncode}"
        return cast(list[Kernel], json.loads(file.read_text())["kernels"])


def show(counted: Counted) -> None:
    """Print what was found."""
    print(f"{len(counted.kernels)} kernels, {counted.compared:,} launches compared")
    for outcome in OUTCOMES:
        print(f"  {outcome:14} {counted.outcomes[outcome]:>8,}")
    print(f"identical: {100 * counted.share:.1f} % (aim {100 * AIM:.0f} %)")
    for reason, count in counted.explained.most_common():
        print(f"  explained {count:>8,}: {reason}")
    for text in counted.unexplained[:40]:
        print(f"  not explained: {text}")
    if len(counted.unexplained) > 40:
        print(f"  and {len(counted.unexplained) - 40:,} more")


def main(words: Sequence[str] | None = None) -> int:
    """Run all programs, and count."""
    parser = argparse.ArgumentParser(description="Count launches that are identical on a GPU and on the emulator.")
    parser.add_argument("programs", nargs="*", help="a Python file, or a command line")
    parser.add_argument("--list", default="", help="a file with a command line in each line")
    parser.add_argument("--device", default="cuda", help="cuda, or MODULE:FUNCTION that gives another device")
    parser.add_argument("--all-configs", action="store_true", help="run every configuration of autotuned kernels")
    parser.add_argument("--no-search", action="store_true", help="do not look for instructions: nothing is explained")
    parser.add_argument("--max-seconds", type=float, default=600.0, help="seconds of one launch here")
    given = parser.parse_args(words)
    listed = Path(given.list).read_text().splitlines() if given.list else []
    programs = [*given.programs, *(line for line in listed if line.strip() and not line.startswith("#"))]
    if not programs:
        parser.error("name programs, or a file that lists them (--list)")
    options = [f"--max-seconds={given.max_seconds}"]
    options += ["--all-configs"] if given.all_configs else []
    options += ["--no-search"] if given.no_search else []
    counted, failed = Counted(), 0
    for program in programs:
        found = compared(program, given.device, options)
        if isinstance(found, str):
            failed += 1
            print(f"{program}: not run: {found}", file=sys.stderr)
        else:
            counted.add(program, found)
    show(counted)
    return 2 if failed else 0 if counted.reached else 1


if __name__ == "__main__":
    sys.exit(main())
