"""The options of a session: which launches are run and checked, in which order, and for how long."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.doors.identity import KernelIdentity
from kernbench.ptx.emulator.engine.machine import architecture
from kernbench.ptx.emulator.engine.schedule import schedule_of
from kernbench.ptx.launching.blocks import read_blocks

# treatments of a launch
CHECKED, UNCHECKED, LEFT_OUT, REFUSED = "checked", "unchecked", "left out", "refused"


@dataclass(frozen=True)
class Options:
    """The options of a session.

    - `only`, `skip`: patterns of kernel names (`*` and `?`; a plain name also matches names that contain it), or
      NAME@FILE:LINE, each part of which may be left out, where several kernels have one name. Kernels that `only`
      does not match, and launches of a kernel after the `first` ones, run without checks, so that the program's results
      stay right. Kernels that `skip` matches are not run at all.
    - `blocks`: numbers of the blocks of each grid to run (x fastest); a launch with none of them is left out.
    - `max_seconds`: limit of one launch.
    - `stop_at_finding`: a launch with findings raises `UnsafeLaunchError` in the program.
    - `keep_going`: calls after a failed assertion, a trap or a deadlock do not fail, unlike on a GPU.
    - `all_configs`: run every configuration of an autotuned kernel; `best_config`: take the one with the shortest
      predicted time.
    - `strict`: count formal findings.
    - `sms`: the number of multiprocessors a program sees: kernels that launch one block for each get smaller.
    - `keep_timelines`: keep the timelines of runs in which warps pass work to each other.
    - `time`: predict how long launches take on a GPU (`gpu`: its name or file; without it one that runs the code);
      `sensitivity`: also what changes of large ones would save.
    - `exact`: products and sums without a rounding of their own are rounded as by ptxas.
    - `compare`: a device on which every launch is run as well, to compare the results: "cuda", the first GPU, or
      MODULE:FUNCTION, which is called with the session's device and returns another one
      (`comparing.sessions.Elsewhere`). Launches are then exact. Without `search`, the instruction at which results
      diverge is not searched for.
    """

    arch: str = "sm_90a"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    first: int | None = None
    blocks: tuple[int, ...] | None = None
    checks: bool = True
    schedule: str | int = "canonical"
    max_seconds: float = 600.0
    stop_at_finding: bool = False
    all_configs: bool = False
    strict: bool = False
    sms: int | None = None
    keep_timelines: bool = False
    best_config: bool = False
    time: bool = False
    gpu: str = ""
    sensitivity: bool = False
    exact: bool = False
    compare: str = ""
    search: bool = True
    keep_going: bool = False

    def __post_init__(self) -> None:
        architecture(self.arch)
        schedule_of(self.schedule)
        if self.first is not None and self.first < 0:
            raise MisuseError(f"first={self.first}: give the number of launches of each kernel that are checked")
        if self.sms is not None and self.sms < 1:
            raise MisuseError(f"sms={self.sms}: a GPU has one multiprocessor at least")
        if not self.max_seconds > 0:
            raise MisuseError(f"max_seconds={self.max_seconds:g}: give the seconds that one launch may take")
        if self.compare and self.blocks is not None:
            raise MisuseError("compare: a GPU runs all blocks of a grid; leave blocks out")
        if self.blocks is not None and (not self.blocks or min(self.blocks) < 0):
            raise MisuseError("blocks: give numbers of blocks, 0 and up")

    def treatment(self, kernel: KernelIdentity, earlier: int, blocks: int) -> str:
        """How to run a launch of a kernel with `earlier` launches before it, and a grid of `blocks` blocks."""
        if self.skips(kernel):
            return LEFT_OUT
        if self.blocks is not None and min(self.blocks) >= blocks:
            return LEFT_OUT
        chosen = not self.only or any(map(kernel.matches, self.only))
        wanted = self.checks and chosen and (self.first is None or earlier < self.first)
        return CHECKED if wanted else UNCHECKED

    def skips(self, kernel: KernelIdentity) -> bool:
        """Whether a kernel is not run at all."""
        return any(map(kernel.matches, self.skip))

    def unmatched(self, kernels: Collection[KernelIdentity]) -> Iterator[str]:
        """Patterns that match none of these kernels, each with its option."""
        for option, patterns in (("--only", self.only), ("--skip", self.skip)):
            for pattern in patterns:
                if not any(kernel.matches(pattern) for kernel in kernels):
                    yield f"{option} {pattern}"

    def chooses_none(self, kernels: Collection[KernelIdentity]) -> bool:
        """Whether kernels are selected by name, and none of these matches."""
        return bool(self.only) and not any(kernel.matches(pattern) for pattern in self.only for kernel in kernels)

    def to_json(self) -> str:
        """As text, for another process."""
        return json.dumps(asdict(self))


def options_from(given: Mapping[str, Any]) -> Options:
    """Options by name; an unknown name is an error."""
    known = {field.name for field in fields(Options)}
    for name in given:
        if name not in known:
            raise MisuseError(unknown("option", name, sorted(known)))
    plain: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return Options(**plain)


def read_options(text: str) -> Options:
    """Read what `to_json` wrote."""
    return options_from(json.loads(text))


# parsers of options given as text
_KINDS: Mapping[str, Any] = {
    "only": lambda text: tuple(text.split(",")),
    "skip": lambda text: tuple(text.split(",")),
    "first": int,
    "blocks": read_blocks,
    "max_seconds": float,
    "sms": int,
}
_WORDS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def parse_option(text: str) -> dict[str, Any]:
    """An option as NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise MisuseError(f"{text!r}: write NAME=VALUE, as in first=3")
    try:
        return {name: _KINDS[name](value) if name in _KINDS else _WORDS.get(value.lower(), value)}
    except ValueError:
        raise MisuseError(f"{text!r}: {value!r} is no number") from None
