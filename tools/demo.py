"""`make demo`: a job on each of the three targets, with pages to open. Exit code 0 if each ends as it should.

The PTX kernel has a race planted in it, so its command ends with exit code 1, and the demo fails if it does not. That
part begins first and beside the others, since the emulator compiles its loops for up to half a minute on its first run.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

ROOT = Path(__file__).parent.parent
# exit codes of the command line
RIGHT_AND_SAFE, FOUND = 0, 1


@dataclass(frozen=True)
class Part:
    """A command of the demo, with the exit code that it should end with and what is said before and after it."""

    title: str
    command: str
    expected: int = RIGHT_AND_SAFE
    afterwards: str = ""

    @property
    def words(self) -> list[str]:
        """The command by the Python that runs this file."""
        return [sys.executable, "-m", *shlex.split(self.command)]


MESH = Part(
    "1. mesh: llama-70B attention, prefill and decode, for one user and for many",
    "kernbench run milestone_gqa_llama70b --trace out/milestone.pftrace --html out/milestone.html",
)
NPU = Part(
    "2. npu: paged attention of one token for each sequence",
    "kernbench run paged_attention --html out/paged_attention.html",
)
PTX = Part(
    "3. ptx: a sum of rows with a race planted in it, which the emulator must find",
    "kernbench ptx check examples/ptx/row_sum_race.ptx --launch examples/ptx/row_sum_race.toml --html out/race.html",
    FOUND,
    "This race is planted: the comment at the top of examples/ptx/row_sum_race.ptx says how, and row_sum.ptx beside\n"
    "it has the barrier in the right place. To find the race is the demo's job, so it ends with exit code 0.",
)


def play(before: Iterable[Part], beside: Part) -> list[str]:
    """Run the parts, the last beside the others, and print what each says; the commands that ended otherwise."""
    with TemporaryFile("w+", encoding="utf-8") as said:
        late = subprocess.Popen(beside.words, stdout=said, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            ended = [(part, _shown(part)) for part in before]
            _head(beside)
            ended.append((beside, late.wait()))
        finally:
            late.kill()
            late.wait()
        said.seek(0)
        print(said.read(), flush=True)
    if ended[-1][1] == beside.expected:
        print(beside.afterwards, flush=True)
    return [f"{part.command}: exit code {code}, not {part.expected}" for part, code in ended if code != part.expected]


def _head(part: Part) -> None:
    print(f"\n{part.title}\n$ {part.command}", flush=True)


def _shown(part: Part) -> int:
    _head(part)
    return subprocess.run(part.words, cwd=ROOT, check=False).returncode


def main() -> None:
    """Play the demo, and name the pages."""
    (ROOT / "out").mkdir(exist_ok=True)
    failed = play([MESH, NPU], PTX)
    print("\npages to open: out/milestone.html, out/paged_attention.html, out/race.html")
    if failed:
        sys.exit("\n".join(["the demo did not end as it should:", *failed]))


if __name__ == "__main__":
    main()
