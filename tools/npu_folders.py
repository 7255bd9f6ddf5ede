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
from contextlib import suppress
from pathlib import Path

CUTS = {"batch": 2, "context_len": 300, "num_batches": 2, "matmul_add_task_num": 8, "seq_len": 200}
CHIPS = ("a2a3", "a5")
# what was found out about findings, by hand
NOTES = """
The findings, looked at one by one:

- **Unrolled paged attention** (both chips): true. `aiv_softmax_prepare.cpp` loads the scores of the next block into one
  of two tiles while the vector unit may still read that tile: there is a flag from MTE2 to V, and none back. A flag is
  set again before its last wait is sure to have happened, for the same reason.
- **scalar_data**: the uninitialised read is true. The orchestration gives one element of a tensor a value, and the
  kernel reads all 16,384; the test compares only what depends on the first. The other two have not been looked at.

Folders that are not in the table have not been tried yet.
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
            if "unknown case" not in str(error):
                say(file, "", chip, "refused", str(error))
            continue
        seen = set()
        for case in sorted(found, key=lambda case: not is_small(case, chip)):
            if case.test in seen:
                continue
            seen.add(case.test)
            case.params.update({k: v for k, v in CUTS.items() if case.params.get(k, 0) > v})
            judge(file, chip, case, run_case(case, Budget(seconds=60)))


def is_small(case, chip: str) -> bool:
    """Whether a case is meant for the reference's simulator."""
    tables = [c for c in case.test.CASES if c.get("name") == case.name]
    return any(f"{chip}sim" in table.get("platforms", ()) for table in tables)


def judge(file: Path, chip: str, case, outcome) -> None:
    """Print what became of a case."""
    if outcome.run is None:
        say(file, case.title, chip, "refused", outcome.refusal)
        return
    kinds = Counter(f.kind for f in outcome.run.findings)
    first = outcome.run.findings[0] if outcome.run.findings else None
    why = f"{dict(kinds)}: {Path(first.where.file).name}:{first.where.line} {first.message}" if first else outcome.wrong
    word = "right and safe" if outcome.is_good else "finding" if first else "wrong"
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
    """Files with test classes."""
    found = [f for f in sorted(root.rglob("test_*.py")) if "@scene_test" in f.read_text(errors="replace")]
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


def markdown(root: Path, lines: list[dict[str, object]]) -> str:
    """The table."""
    counts = Counter(str(line["word"]) for line in lines)
    text = [
        "# Public folders of C++ kernels",
        "",
        "Generated by `tools/npu_folders.py` from a checkout of the reference's repository, one case of each test",
        "class and chip. " + ", ".join(f"{word}: {count}" for word, count in sorted(counts.items())) + ".",
        "",
        "| folder | case | chip | result | time | reason |",
        "|---|---|---|---|---|---|",
    ]
    for line in lines:
        folder = Path(str(line["file"])).parent.relative_to(root)
        time = f"{int(str(line['time'])) / 1e6:,.2f} us" if line["time"] is not None else ""
        why = " ".join(str(line["why"]).replace(f"{root}/", "").split()).replace("|", "\\|").replace("<", "&lt;")[:200]
        text.append(f"| `{folder}` | {line['case']} | {line['chip']} | {line['word']} | {time} | {why} |")
    return "\n".join(text) + "\n" + NOTES


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
    text = markdown(root, run_all(root, given.only, given.seconds, given.keep))
    if given.out is not None:
        given.out.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
