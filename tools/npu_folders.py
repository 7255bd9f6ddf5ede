"""Run every test class with C++ kernels below a folder and write what became of it as a table (docs/npu-folders.md).

    python tools/npu_folders.py CHECKOUT [--only TEXT] [--seconds 300] [--out docs/npu-folders.md] [--keep FILE.json]

CHECKOUT is a copy of the reference's repository; nothing of it is kept. Each file runs in a process of its own, one
case for each class and chip: the first that is meant for a simulator, else the first, with its sizes cut.
"""

import argparse
import importlib
import json
import os
import resource
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernbench.npu.scene.cases import Case
    from kernbench.npu.scene.running import Outcome

CUTS = {"batch": 2, "context_len": 300, "num_batches": 2, "matmul_add_task_num": 8, "seq_len": 200}
CHIPS = ("a2a3", "a5")
MOST_MEMORY = 12 << 30
HEADERS = Path(__file__).resolve().parent.parent / "src" / "kernbench" / "npu" / "cpp" / "headers"
# what was found out about findings, by hand
NOTES = """
The findings, looked at one by one. None is known to be false; each names the two accesses, what would order them, and
what the chip may do without.

- **Unrolled paged attention, `aiv_softmax_prepare.cpp`** (`paged_attention_unroll`, its form with four axes, and
  the ones with manual scopes, on both chips), `race`: true. The kernel goes over all scores once for their maximum,
  with two tiles in turn. While block i is looked at, `TLOAD` (MTE2) fills the other tile with block i + 1, which
  `TROWMAX` (V) read as block i - 1. There is a flag from MTE2 to V, and none from V to MTE2; `pipe_barrier(PIPE_V)`
  holds the vector unit, not the transfers. So MTE2 waits for nothing: where two loads take less time than one
  `TROWMAX`, the scores of block i + 1 replace those of block i - 1 while their maximum is taken. Tests hardly see
  it, since a maximum that is off changes only the scale of numerator and denominator.
- **The same kernel, `flag-misuse`**: true. For want of that edge, event 0 from MTE2 to V is set for the next block
  while the wait of the block before may still be in V's queue (the same from V to MTE3, also with one block, where
  the loop's last set is followed by the one after the loop). If a flag holds one set, the second is lost, and the
  core waits for ever; if it counts, the later wait may pass on the earlier set.
- **SPMD paged attention with FIFOs on a2a3**, `race`: true. `TCVT` (V) writes the bf16 tile of block i + 1 while
  the `TPUSH` of block i (MTE3) may still read it. What the vector core waits for in between are the scores of block
  i + 1, which the cube sends without having seen the weights of block i. The cube would then multiply a mixture of
  two blocks. The `missing-barrier`s (two `TMULS` on one vector) are true by the rule of the chip; the
  `uninitialised-read` is true and harmless: in the first round a maximum is saved that nobody wrote, and not used.
  The kernel for a5 has `pipe_barrier(PIPE_ALL)` there, and is right and safe.
- **`kernel_log_sqrt.cpp`** (`matmul`, `graph_execution` on a2a3), `missing-barrier`: true by the rule of that chip:
  `TSQRT` reads what `TLOG` writes, on the same pipe, without `pipe_barrier(PIPE_V)`.
- **`scalar_data`**: true, and without consequence for what its test compares. The orchestration gives one element
  of a tensor a value, and a kernel reads all 16,384 (`uninitialised-read`). An input is passed as OUT to a kernel
  that writes nothing, to have the runtime follow it (`argument-direction`, and for that reason `output-unwritten`).
- **`merge_pipeline_barrier`**: blocks of one task wait for each other by a counter in memory. `argument-direction`:
  true, the counter is added to by the kernel and passed as an input, so that the tensor map orders nobody after it.
  `deadlock`: true by the rule of the runtime, the eight blocks wait for each other and are not submitted to start
  together; with 24 clusters free they do. `output-unwritten`: true and harmless, of each block's 32 numbers six
  are written.
- **`simt_basic`** on a5, `undrained-store`: true by the rule of pipes. `MSCATTER` runs on V there, and the kernel ends
  with `pipe_sync()`, which waits for MTE3. A comment in the kernel says that the library's own test of the operation
  has a barrier over all pipes there, and that this one was chosen instead. What the unit that scatters does beyond its
  pipe is not published; the test has one task, whose result the host reads much later.

What does not run:

- **Level 3 with several chips**: a program of the host, in Python, drives several chips. With one chip it runs; a
  test's own hooks that look at the reference's worker are left out (`test_l3_launch_acceptance`), and a
  test that is only that is refused (`worker_async_endpoint`, `worker_async_fifo`, `test_l3_create_buffer`).
- **`qwen3_14b_decode`**: all 40 layers of a model of 14 billion weights, which the test makes before it runs; no size
  of it can be cut.
- **`spmd_paged_attention_highperf`** is written with the vendor's own library and its intrinsics.
"""


def run_file(file: Path) -> None:
    """The cases of one file, a line of JSON for each."""
    from kernbench.common.errors import KernbenchError
    from kernbench.npu.scene.cases import cases_of
    from kernbench.npu.scene.running import run_case
    from kernbench.safety.budget import Budget

    for chip in CHIPS:
        try:
            found = cases_of(file, chip, ["all"])
        except KernbenchError as error:
            say(file, "", chip, "refused", str(error))
            continue
        seen = set()
        for case in sorted(found, key=lambda case: not is_small(case, chip)):
            if case.test in seen:
                continue
            seen.add(case.test)
            sizes = {name: size for name, size in case.params.items() if isinstance(size, int)}
            case.params.update({name: most for name, most in CUTS.items() if sizes.get(name, 0) > most})
            judge(file, chip, case, run_case(case, Budget(seconds=60)))


def is_small(case: "Case", chip: str) -> bool:
    """Whether a case is meant for the reference's simulator."""
    tables = [table for table in case.test.CASES if table.get("name") == case.name]
    platforms = [table.get("platforms") for table in tables]
    return any(isinstance(names, Sequence) and f"{chip}sim" in names for names in platforms)


def judge(file: Path, chip: str, case: "Case", outcome: "Outcome") -> None:
    """Print what became of a case."""
    if outcome.run is None:
        several = "several chips" in case.refusal
        say(file, case.title, chip, "several chips" if several else "refused", outcome.refusal)
        return
    kinds = Counter(f.kind for f in outcome.run.findings)
    first = outcome.run.findings[0] if outcome.run.findings else None
    where = f"{Path(first.where.file).name}:{first.where.line} " if first and first.where else ""
    why = f"{dict(kinds)}: {where}{first.message}" if first else outcome.wrong
    word = "right and safe" if outcome.is_good else "finding" if first else "wrong"
    if set(kinds) == {"over-budget"}:
        word = "not finished"
    say(file, case.title, chip, word, why, outcome.time_ps)


def say(file: Path, case: str, chip: str, word: str, why: str, time: int | None = None) -> None:
    """One line for the table."""
    sys.stdout.write(line_of(file, case, chip, word, why, time))
    sys.stdout.flush()


def line_of(file: Path, case: str, chip: str, word: str, why: str, time: int | None) -> str:
    """A row of the table, as a line of JSON."""
    row = {"file": str(file), "case": case, "chip": chip, "word": word, "why": why, "time": time}
    return json.dumps(row) + "\n"


def all_files(root: Path) -> list[Path]:
    """Files with test classes among examples and system tests."""
    folders = [root / name for name in ("examples", "tests/st") if (root / name).is_dir()] or [root]
    files = [f for folder in folders for f in sorted(folder.rglob("test_*.py"))]
    found = [f for f in files if "@scene_test" in f.read_text(errors="replace")]
    # those with few sources first
    return sorted(found, key=lambda f: len(list(f.parent.rglob("*.cpp"))))


def run_all(root: Path, only: str, seconds: int, kept: Path | None) -> list[dict[str, object]]:
    """Every file in a process of its own, forked from this one, which has loaded what all of them need."""
    with suppress(ImportError):
        importlib.import_module("torch")
    importlib.import_module("kernbench.npu.scene.running")
    lines: list[dict[str, object]] = []
    if kept is not None and kept.is_file():
        lines = [json.loads(line) for line in kept.read_text().splitlines()]
    done = {line["file"] for line in lines}
    for file in all_files(root):
        if only not in str(file) or str(file) in done:
            continue
        output = forked(file, seconds)
        found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        lines += found
        if kept is not None:
            with kept.open("a") as stream:
                stream.writelines(json.dumps(line) + "\n" for line in found)
    return lines


def forked(file: Path, seconds: int) -> str:
    """What a process prints that runs a file; it may take so many seconds of processor time."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(theirs, 1)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        # a file that asks for more is refused its memory, and says so
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        try:
            run_file(file)
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as stream:
        output = stream.read()
    _, status = os.waitpid(child, 0)
    if status:
        output += line_of(file, "", "", "too slow", f"more than {seconds} s of processor time", None)
    return output or line_of(file, "", "", "refused", "no case for a2a3 or a5", None)


def markdown(root: Path, lines: list[dict[str, object]], seconds: int) -> str:
    """The table, and above it how many rows came to what."""
    lines = sorted(lines, key=lambda line: (str(line["file"]), str(line["case"]), str(line["chip"])))
    counts = Counter(str(line["word"]) for line in lines)
    alone = len(lines) - counts["several chips"]
    ran = counts["right and safe"] + counts["finding"] + counts["wrong"]
    text = [
        "# Public folders of C++ kernels",
        "",
        "Generated by `python tools/npu_folders.py CHECKOUT --out docs/npu-folders.md` from a checkout of the",
        "reference's repository: every file with a `@scene_test` class among its examples and system tests",
        f"({len(files_of(lines))} files), one case of each class and chip, with large sizes cut. Times are of these",
        "cut cases. A test's own `test_run`, which looks at files that the reference's runtime writes, is not run,",
        "unless it is all that a program of the host has. All rows are of one run, with",
        f"{MOST_MEMORY >> 30} GiB and {seconds} s of processor time for each file.",
        "",
        f"Of {len(lines)} rows {counts['several chips']} need several chips. Of the other {alone}, {ran} run "
        f"({100 * ran // max(alone, 1)} %):",
        ", ".join(f"{word}: {count}" for word, count in sorted(counts.items())) + ".",
        "",
        "| folder | case | chip | result | time | reason |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*text, *(row_of(root, line) for line in lines)]) + "\n" + NOTES


def files_of(lines: list[dict[str, object]]) -> set[str]:
    """The files that rows are of."""
    return {str(line["file"]) for line in lines}


def row_of(root: Path, line: dict[str, object]) -> str:
    """One row of the table."""
    file = Path(str(line["file"])).relative_to(root)
    folder = file if file.parent.name == "tensormap_and_ringbuffer" else file.parent
    time = f"{int(str(line['time'])) / 1e6:,.2f} us" if line["time"] is not None else ""
    why = str(line["why"]).replace(f"{root}/", "").replace(f"{HEADERS}/", "")
    why = " ".join(why.split()).replace("|", "\\|").replace("<", "&lt;")[:200]
    return f"| `{folder}` | {line['case']} | {line['chip']} | {line['word']} | {time} | {why} |"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path)
    parser.add_argument("--file", type=Path, help="run one file and print its lines")
    parser.add_argument("--only", default="", help="only files whose path has this text")
    parser.add_argument("--seconds", type=int, default=300, help="seconds for one file")
    parser.add_argument("--out", type=Path, help="write the table here")
    parser.add_argument("--keep", type=Path, help="keep results here, and go on from them")
    given = parser.parse_args()
    if given.file is not None:
        run_file(given.file.resolve())
        return
    if given.checkout is None:
        parser.error("a checkout is wanted")
    root = given.checkout.resolve()
    text = markdown(root, run_all(root, given.only, given.seconds, given.keep), given.seconds)
    if given.out is not None:
        given.out.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
