"""The registry of targets: the only module that names those of kernbench. Others come from installed packages.

A package adds a target by an entry point of the group `kernbench.targets` that names its `Listed`. Its entry is
read without importing any target; a target's own package is imported when it is asked for by name.
"""

import os
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from kernbench.common.errors import BenchError, KernbenchError, said, unknown

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from kernbench.result.run import Run
    from kernbench.targets.target import Target

GROUP = "kernbench.targets"
# the name of machine parameters in every target: parameters `machine`, settings `machine.KEY`
MACHINE = "machine"


@dataclass(frozen=True)
class Commands:
    """A target's command group: the module that has it as `app`, and its line in the list."""

    word: str
    module: str
    short_help: str


@dataclass(frozen=True)
class TopCommand:
    """A target's command at the top level: its module and function, its line, and examples."""

    name: str
    module: str
    function: str
    short_help: str
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Listed:
    """The description of a target before it is imported."""

    name: str
    # the module that has the target as TARGET
    module: str
    # the parameter of a bench that names one of its machine files; empty if it has none
    machine: str = ""
    # what `kernbench new` writes for it, in a few words; empty if there is no template
    template: str = ""
    # suffixes of its source files, which no output replaces
    sources: tuple[str, ...] = ()
    commands: Commands | None = None
    top_commands: tuple[TopCommand, ...] = ()
    # whether it records the commands of each rank
    by_rank: bool = False
    # the module that makes benches of folders of its kernels (`bench.discovery.folders`); empty if not supported
    folders: str = ""
    # bench and panel of small runs that together need nearly all compiled loops of its benches (`kernbench cache warm`)
    small_runs: tuple[tuple[str, str], ...] = ()
    # kinds of findings that only it has, name -> meaning in a sentence; registered with the entry
    kinds: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.kinds:
            from kernbench.result.finding import add_kinds

            add_kinds(self.kinds)


BUNDLED = (
    Listed(
        "mesh",
        "kernbench.mesh.target",
        MACHINE,
        "a K/V ring over PEs",
        by_rank=True,
        small_runs=(("milestone_gqa_llama70b", "single_user_decode"),),
    ),
    Listed(
        "npu",
        "kernbench.npu.target",
        "chip",
        "cube and vector tasks",
        commands=Commands("npu", "kernbench.npu.front.commands", "C++ kernels with their test classes: test."),
        folders="kernbench.npu.front.folders",
        small_runs=(("paged_attention", "context_33"), ("paged_attention", "contexts_33_17")),
    ),
    Listed(
        "ptx",
        "kernbench.ptx.target",
        "gpu",
        template="a warp for each head, built in Python",
        sources=(".cu", ".ptx"),
        commands=Commands(
            "ptx", "kernbench.ptx.front.commands.ptx", "PTX from any compiler: info, check, run, launch, mutate, emit."
        ),
        top_commands=(
            TopCommand(
                "exec",
                "kernbench.ptx.front.commands.exec",
                "exec_program",
                "Any GPU program, unchanged, on a GPU that is not there.",
                (
                    "kernbench exec -- python my_test.py",
                    "kernbench exec --arch sm_100a --html launches.html -- pytest tests",
                ),
            ),
            TopCommand(
                "cuda",
                "kernbench.ptx.front.commands.cuda",
                "cuda",
                "CUDA C++: compile a file, and check a launch of a kernel.",
                ("kernbench cuda check my.cu -k 'softmax<float, 256>' --block 256",),
            ),
        ),
        small_runs=(
            ("batched_incremental_attention", "one_warp"),
            ("batched_incremental_attention", "shared_kv"),
            ("batched_incremental_attention", "split_kv"),
            ("gated_delta_rule_chunk_output", "sm_90a_keys_64"),
            ("gated_delta_rule_chunk_output", "sm_100a_keys_64"),
        ),
    ),
)
# the target of a bench without a machine parameter
DEFAULT = BUNDLED[0]


@cache
def listed() -> tuple[Listed, ...]:
    """All targets, those of kernbench first."""
    found = list(BUNDLED)
    for entry in _entries() if _any_named() else ():
        row = _loaded(entry)
        for other in found:
            if row.name == other.name or (row.machine and row.machine == other.machine):
                raise BenchError(
                    f"{_who(entry)} brings a target {row.name!r} with the machine parameter {row.machine!r}, which "
                    f"target {other.name!r} has already: rename it, or uninstall the package"
                )
        found.append(row)
    return tuple(found)


def find(name: str) -> "Target":
    """The target with this name; its package is imported now."""
    for row in listed():
        if row.name == name:
            target: Target = import_module(row.module).TARGET
            return target
    raise BenchError(unknown("target", name, [row.name for row in listed()]))


def of_run(run: "Run") -> "Target":
    """The target of a run; a run without a known target gets the defaults of all targets."""
    from kernbench.targets.target import Target

    origins = (run.origin, *(launch.origin for launch in reversed(run.launches)))
    name = next((origin["target"] for origin in origins if "target" in origin), "")
    return find(name) if any(row.name == name for row in listed()) else Target()


def of_parameters(names: Collection[str]) -> Listed:
    """The target whose machines a bench with these parameter names runs on."""
    own = [row for row in listed() if row.machine and row.machine in names]
    # a target's own parameter name takes precedence over the common one
    return next((row for row in own if row.machine != MACHINE), own[0] if own else DEFAULT)


def with_machines() -> "list[Target]":
    """Every target that has machine files."""
    return [find(row.name) for row in listed() if row.machine]


@cache
def machine_words() -> tuple[str, ...]:
    """The parameters of benches that name machine files."""
    return tuple(row.machine for row in listed() if row.machine)


def _any_named() -> bool:
    """Whether an installed package uses the entry-point group at all. `importlib.metadata` would make `kernbench
    --help` a third slower, so it is used only then, or if a path entry is not a folder.
    """
    for path in map(Path, sys.path):
        if os.path.isfile(path):
            return True
        for file in (*path.glob("*.dist-info/entry_points.txt"), *path.glob("*.egg-info/entry_points.txt")):
            try:
                if GROUP.encode() in file.read_bytes():
                    return True
            except OSError:
                continue
    return False


def _entries() -> "Iterable[EntryPoint]":
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _loaded(entry: "EntryPoint") -> Listed:
    """The object of an entry point, which is third-party code."""
    try:
        row = entry.load()
    except KernbenchError:
        raise
    except Exception as error:
        why = said(error)
        raise BenchError(f"{_who(entry)} cannot be imported ({why}): mend or uninstall it") from error
    if not isinstance(row, Listed):
        raise BenchError(f"{_who(entry)} is a {type(row).__name__}; kernbench.targets.registry.Listed is wanted")
    return row


def _who(entry: "EntryPoint") -> str:
    package = f" of package {entry.dist.name}" if entry.dist is not None else ""
    return f"the entry point {entry.name} = {entry.value}{package}"
