"""Every launch of a program runs twice, under two settings of the PTX emulator, and what it leaves is compared.

    python -m tests.twice random 0-99                    # random programs by seed, safe ones and changed ones
    python -m tests.twice -- my_program.py --its options # any Python program with launches
    python -m tests.twice -- -m pytest tests/kernels -n 0
    python -m tests.twice --emulated sm_90a -- triton_program.py
    python -m tests.twice --list programs.txt            # one such command a line, each in a process of its own

A setting is a value of KERNBENCH_FAST_PATHS (`kernbench.ptx.emulator.fast_paths`): "all" against "none" unless
`--first` and `--second` say otherwise. The second run is made in a fork of the process, so neither sees the other, and
the program goes on with the first. Compared are memory byte by byte, findings word for word, counts, the status, what
was printed, errors, and records for time or order where the launch keeps them (`--record`: every launch of a device
keeps one for time). The first difference is said; the exit code is 1 if there is one, else that of the program, and 2
if no launch was compared. With `--which` it is looked for the fast paths that each make the difference alone.
"""

import argparse
import os
import pickle
import runpy
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from types import FunctionType, MethodType

import numpy as np

from kernbench.ptx.devices.device import EmulatedDevice
from kernbench.ptx.emulator.engine.launch import Setting
from kernbench.ptx.emulator.fast_paths import EVERY, NAMES, NO, fast_paths
from kernbench.ptx.emulator.memory.arena import BLOCK, TRACKED
from kernbench.result.run import Run

Evidence = dict[str, object]
# what a launch is compared by, in the order in which a difference is said
PARTS = ("error", "status", "findings", "formal", "outputs", "memory", "metrics", "views", "recording")
# what a run shows of itself that says which setting it had, or how long it took
_LEFT_OUT = frozenset(("seconds", "division"))
_DEEPEST = 60
# characters of a value that are shown
_SHOWN = 400


def under(setting: Setting, way: str) -> Setting:
    """The same launch under another setting of the emulator."""
    return replace(setting, fast=fast_paths(way))


@dataclass
class Twice:
    """What came of the launches of a program: how many were compared, and where they differ."""

    first: str = EVERY
    second: str = NO
    # look for the fast paths that make a difference
    which: bool = False
    # called with each difference
    say: Callable[[str], None] = print
    compared: int = 0
    skipped: int = 0
    differences: list[str] = field(default_factory=list)

    def perform(self, original: Callable[..., Run], device: EmulatedDevice, *given: object, **more: object) -> Run:
        """`EmulatedDevice._perform`, twice."""
        program, setting, *rest = given
        assert isinstance(setting, Setting)
        if not _can_fork(device, given, more):
            self.skipped += 1
            return original(device, program, under(setting, self.first), *rest, **more)

        def run(way: str) -> Run:
            return original(device, program, under(setting, way), *rest, **more)

        other = in_fork(lambda: evidence_of(device, lambda: run(self.second)))
        ways = [f"{EVERY if self.first == NO else self.first},-{name}" for name in NAMES] if self.which else []
        others = [in_fork(lambda way=way: evidence_of(device, lambda: run(way))) for way in ways]
        runs: list[Run | BaseException] = []
        mine = evidence_of(device, lambda: run(self.first), runs)
        self.compared += 1
        found = self._difference(mine, other, self.second)
        if found:
            named = zip(NAMES, others, ways, strict=False)
            makers = [name for name, one, way in named if self._difference(mine, one, way)]
            because = f" (fast paths that make a difference: {', '.join(makers) or 'none alone'})" if self.which else ""
            self.differences.append(f"launch {self.compared}, {_name(program, setting)}: {found}{because}")
            self.say(self.differences[-1])
        (ended,) = runs
        if isinstance(ended, BaseException):
            raise ended
        return ended

    def _difference(self, mine: "Evidence", other: "Evidence", way: str) -> str:
        """The first difference; the executor counts steps in its own way."""
        if fast_paths(self.first).executor != fast_paths(way).executor:
            mine, other = without_steps(mine), without_steps(other)
        return difference(mine, other)

    def __str__(self) -> str:
        count = len(self.differences)
        differ = f"{count} of them {'differs' if count == 1 else 'differ'}" if count else "no difference"
        left = f"; {self.skipped} ran once" if self.skipped else ""
        many = f"{self.compared} {'launch' if self.compared == 1 else 'launches'}"
        return f"{many} under '{self.first}' and '{self.second}': {differ}{left}"


def without_steps(found: "Evidence") -> "Evidence":
    """What a launch leaves, but for the number of its steps."""
    metrics = found.get("metrics")
    if not isinstance(metrics, dict):
        return found
    return {**found, "metrics": {name: value for name, value in metrics.items() if name != "steps"}}


def _can_fork(device: EmulatedDevice, given: tuple[object, ...], more: dict[str, object]) -> bool:
    """Not where somebody looks into the launch, or where memory is shared with other processes."""
    looks = (*given[5:7], more.get("probe"), more.get("naming"))
    return device._arena.private and all(one is None for one in looks)


def _name(program: object, setting: Setting) -> str:
    kernel = getattr(getattr(program, "kernel", None), "name", "?")
    return f"{kernel} (grid {setting.grid}, block {setting.block}, schedule {setting.schedule})"


@contextmanager
def compared(
    first: str = EVERY, second: str = NO, which: bool = False, record: bool = False, say: Callable[[str], None] = print
) -> Iterator[Twice]:
    """Inside, every launch of an emulated device runs twice."""
    found = Twice(first, second, which, say)
    perform, launch = EmulatedDevice._perform, EmulatedDevice.launch

    def twice(device: EmulatedDevice, *given: object, **more: object) -> Run:
        return found.perform(perform, device, *given, **more)

    def recorded(device: EmulatedDevice, *given: object, **more: object) -> Run:
        alone = not more.get("order") and more.get("stop") is None and more.get("taken") is None
        asked = {"record": True} if alone and more.get("blocks") is None else {}
        return launch(device, *given, **more | asked)  # type: ignore[arg-type]

    EmulatedDevice._perform = twice  # type: ignore[method-assign,assignment]
    if record:
        EmulatedDevice.launch = recorded  # type: ignore[method-assign,assignment]
    try:
        yield found
    finally:
        EmulatedDevice._perform, EmulatedDevice.launch = perform, launch  # type: ignore[method-assign]


def in_fork(make: Callable[[], Evidence]) -> Evidence:
    """What `make` gives in a copy of this process, which then ends."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "evidence"
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if not process:
            status = 1
            try:
                path.write_bytes(pickle.dumps(make()))
                status = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(status)
        _, status = os.waitpid(process, 0)
        if status:
            return {"error": f"the copy of the process ended with {os.waitstatus_to_exitcode(status)}"}
        found: Evidence = pickle.loads(path.read_bytes())
        return found


def evidence_of(
    device: EmulatedDevice, run: Callable[[], Run], ended: list[Run | BaseException] | None = None
) -> Evidence:
    """What a launch leaves, as plain data; its run or its error is appended to `ended`."""
    found: Evidence = {}
    made: Run | None = None
    try:
        made = run()
    except BaseException as error:
        found["error"] = f"{type(error).__name__}: {error}"
        if ended is not None:
            ended.append(error)
    found["memory"] = memory_of(device)
    if made is not None:
        for part in PARTS:
            if part not in found and part != "error":
                found[part] = plain(getattr(made, part))
        if ended is not None:
            ended.append(made)
    return found


def memory_of(device: EmulatedDevice) -> dict[int, tuple[object, object]]:
    """Blocks of memory that were written, by offset: their bytes, and the states of these."""
    arena = device._arena
    last = -(-arena.used // BLOCK)
    starts = [int(block) * BLOCK for block in np.flatnonzero(arena.dirty[:last])]
    pages = [slice(start, min(start + BLOCK, arena.used)) for start in starts]
    return {
        start: (arena.words[1][page].copy(), arena.state[1][page] & ~np.uint8(TRACKED))
        for start, page in zip(starts, pages, strict=True)
    }


def plain(value: object, deep: int = 0) -> object:
    """A value as plain data: dictionaries, lists, arrays, numbers and texts."""
    if value is None or isinstance(value, bool | int | float | str | bytes | np.generic):
        return value
    if isinstance(value, np.ndarray):
        return value.copy() if value.dtype != object else [plain(one, deep + 1) for one in value.tolist()]
    if isinstance(value, Enum):
        return str(value)
    if deep > _DEEPEST or callable(value) or isinstance(value, FunctionType | MethodType):
        return type(value).__name__
    if isinstance(value, dict):
        return {str(key): plain(one, deep + 1) for key, one in value.items() if key not in _LEFT_OUT}
    if isinstance(value, set | frozenset):
        return sorted((plain(one, deep + 1) for one in value), key=repr)
    if isinstance(value, list | tuple):
        return [plain(one, deep + 1) for one in value]
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name), deep + 1) for one in fields(value)}
    return {name: plain(one, deep + 1) for name, one in sorted(getattr(value, "__dict__", {}).items())}


def difference(one: Evidence, other: Evidence) -> str:
    """The first difference between what two launches left, in a sentence; "" if there is none."""
    for part in PARTS:
        found = differs(one.get(part), other.get(part), part)
        if found:
            return found
    return ""


def differs(one: object, other: object, where: str) -> str:
    """Where and how two values differ first; "" if they do not."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return _arrays_differ(one, other, where)
    if isinstance(one, dict) and isinstance(other, dict):
        for key in (*one, *(key for key in other if key not in one)):
            if key not in one or key not in other:
                here = "first" if key in one else "second"
                return f"{where}: only the {here} has {_named(key, where)}: {_short(one.get(key, other.get(key)))}"
            if found := differs(one[key], other[key], f"{where}, {_named(key, where)}"):
                return found
        return ""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        for number, (mine, theirs) in enumerate(zip(one, other, strict=False)):
            if found := differs(mine, theirs, f"{where}[{number}]"):
                return found
        if len(one) != len(other):
            rest = (one if len(one) > len(other) else other)[min(len(one), len(other))]
            return f"{where}: {len(one)} and {len(other)}; the first that only one has: {_short(rest)}"
        return ""
    same = one == other or (one != one and other != other)
    return "" if type(one) is type(other) and same else f"{where}: {_short(one)} and {_short(other)}"


def _named(key: object, where: str) -> str:
    return f"block at offset {key}" if where == "memory" else str(key)


def _arrays_differ(one: np.ndarray, other: np.ndarray, where: str) -> str:
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{where}: {one.dtype}{list(one.shape)} and {other.dtype}{list(other.shape)}"
    if one.tobytes() == other.tobytes():
        return ""
    bits = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(one.size, -1) for array in (one, other)]
    unlike = (bits[0] != bits[1]).any(axis=1)
    at = np.unravel_index(int(np.argmax(unlike)), one.shape)
    place = ", ".join(map(str, at))
    return f"{where}: at [{place}] {one[at]!r} and {other[at]!r}; {int(unlike.sum())} of {one.size} elements differ"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


# The command


def random_programs(seeds: range, found: Twice) -> None:
    """Random programs of seeds, each with the schedule that follows from its seed."""
    from benchmarks.ptx_random import SCHEDULES, emulate, programs

    from kernbench import ptx

    for seed in seeds:
        for program in programs(seed):
            before = len(found.differences)
            emulate(program, ptx.parse(program.text).kernels["kernel"], SCHEDULES[seed % len(SCHEDULES)])
            if len(found.differences) > before:
                found.say(
                    f"    it is the random program of seed {seed}{f', {program.change}' if program.change else ''}"
                )


def python_program(words: list[str]) -> int:
    """Run a Python program given as on a command line after `python`; returns its exit code."""
    before = sys.argv
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path.insert(0, str(Path(words[0]).parent))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.argv = before
    return 0


def each_of_a_list(path: str, options: list[str]) -> int:
    """Run each line of a file as a command of this module; returns how many of them failed."""
    failed = 0
    for line in Path(path).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            print(f"== {line}", flush=True)
            failed += bool(
                subprocess.run([sys.executable, "-m", "tests.twice", *options, *shlex.split(line)]).returncode
            )
    return failed


def main(words: list[str]) -> int:
    """The command."""
    split = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser("tests.twice", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--first", default=EVERY)
    parser.add_argument("--second", default=NO)
    parser.add_argument("--which", action="store_true", help="name the fast paths that make a difference")
    parser.add_argument("--record", action="store_true", help="every launch of a device is recorded for its time")
    parser.add_argument("--emulated", metavar="ARCH", help="run the program on an emulated GPU, as `kernbench exec`")
    parser.add_argument("--list", metavar="FILE", help="a file with the rest of such a command in each line")
    parser.add_argument("random", nargs="*", help="random FIRST-LAST, by seed")
    options = parser.parse_args(words[:split])
    program = words[split + 1 :]
    if options.list:
        return int(each_of_a_list(options.list, words[: words.index("--list")]) > 0)
    code = 0
    with ExitStack() as stack:
        found = stack.enter_context(compared(options.first, options.second, options.which, options.record))
        if options.random:
            first, _, last = options.random[1].partition("-")
            random_programs(range(int(first), int(last or first) + 1), found)
        if options.emulated:
            from kernbench import ptx

            stack.enter_context(ptx.emulated(options.emulated))
        if program:
            code = python_program(program)
    print(found)
    if code:
        print(f"the program ended with {code}")
    if found.differences or code:
        return 1 if found.differences else code
    return 0 if found.compared else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
