"""What a change would save: the same recording and streams, timed again on a modified GPU or with modified accesses.

A launch is timed again for each change, several changes in parallel. For small launches that takes a fraction of a
second; larger ones are timed again only on request (`--sensitivity`), or by a sample of their SMs. Nothing is run or
joined again.
"""

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from kernbench.common.errors import KernbenchError
from kernbench.ptx.machine import Gpu
from kernbench.ptx.recording.recording import Events, LaunchRecording
from kernbench.ptx.sass.streams import Streams
from kernbench.ptx.time.chip.dealing import BUDGET, LEAST_GROUPS
from kernbench.ptx.time.events import Floats
from kernbench.ptx.time.launch import time_launch
from kernbench.ptx.time.result import LaunchTime
from kernbench.safety.processes.threads import together

# launches up to this many simulated instructions are timed again by default: all changes take about a second
MOST_UNASKED = 200_000
# a sample of a launch's SMs that is timed again has about so many instructions; and the most that it may have, where
# even the smallest sample has more, unless it was asked for
SAMPLE, MOST_SAMPLED = 200_000, 500_000
TENTH = 1.1
# rates of a GPU, by name: parameters that are increased, and parameters that are decreased, if it gets faster
_RATES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "hbm bandwidth": (("hbm.bandwidth",), ()),
    "l2 bandwidth": (("l2.bytes_per_cycle", "l2.write_bytes_per_cycle", "l2.sm_bytes_per_cycle",
                      "copies.bulk_bytes_per_cycle"), ("l2.atomic_interval", "l2.atomic_float")),
    "latency of memory": ((), ("l1.latency", "l2.latency", "hbm.latency", "l2.atomic_latency")),
    "shared memory": (("shared.bytes_per_cycle", "shared.sub_core_bytes_per_cycle", "l1.bytes_per_cycle"),
                      ("shared.conflict", "shared.address_interval")),
    "tensor cores": (("tensor.wgmma", "tensor.mma", "tensor.tcgen05"), ()),
    "mufu": ((), ("pipes.mufu.interval",)),
    "fma and integer pipes": ((), ("pipes.fma.interval", "pipes.integer.interval", "pipes.multiply.interval",
                                   "pipes.wide.interval", "pipes.minmax.interval", "pipes.half2.interval",
                                   "pipes.convert.interval")),
    "double precision": ((), ("pipes.double.interval",)),
    "issue": ((), ("issue.interval",)),
    "launch": ((), ("launch.empty", "launch.first", "launch.cta")),
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A change, what it requires, and the share of the time it saves."""

    what: str
    needs: str
    saves: float


@dataclass(frozen=True)
class Given:
    """What differs when a launch is timed again; None: unchanged.

    - `times` as much work is timed, and the time of CTAs divided by it: the streams have it, or the grid is repeated,
      whose CTAs begin one after the other.
    - `shared` bytes are added to the shared memory of a CTA.
    - `atomics` is the share of their time that atomics take, by event.
    """

    gpu: Gpu | None = None
    events: Events | None = None
    streams: Streams | None = None
    atomics: Floats | None = None
    shared: int = 0
    times: int = 1
    repeats_grid: bool = False


@dataclass(frozen=True)
class Again:
    """A launch timed on a GPU, to be timed again; about `budget` instructions of it are simulated."""

    recording: LaunchRecording
    streams: Streams
    gpu: Gpu
    time: LaunchTime
    budget: int = field(default=BUDGET)

    @property
    def small(self) -> bool:
        """Whether it is timed again by default."""
        return self.time.simulated <= MOST_UNASKED

    @property
    def least_sample(self) -> float:
        """How many instructions the smallest sample of its SMs has."""
        return self.time.instructions * LEAST_GROUPS / float(self.gpu.chip.sms)

    @property
    def sampled_soon(self) -> bool:
        """Whether a sample of its SMs is timed in a fraction of a second."""
        return self.least_sample <= MOST_SAMPLED

    def sampled(self) -> "Again":
        """The launch timed by a sample of its SMs, if it is large."""
        if self.time.simulated <= SAMPLE:
            return self
        return replace(self, time=time_launch(self.recording, self.streams, self.gpu, SAMPLE), budget=SAMPLE)

    def saved(self, *changes: Given) -> list[float]:
        """Seconds that each of the changes saves; never negative.

        They are timed in parallel: the model works on arrays of its own, in machine code that releases the GIL.
        """
        found: dict[int, float] = {}
        together(partial(self._save, found, number, changed) for number, changed in enumerate(changes))
        return [found[number] for number in range(len(changes))]

    def _save(self, found: dict[int, float], number: int, changed: Given) -> None:
        gpu, streams, recording = changed.gpu or self.gpu, changed.streams or self.streams, self._recording(changed)
        try:
            other = time_launch(recording, streams, gpu, self.budget, changed.atomics)
        except KernbenchError:
            found[number] = 0.0
        else:
            once = other.launch_seconds
            if changed.repeats_grid:
                once = min(once + other.dispatch_cycles / (other.clock_mhz * 1e6), other.seconds)
            found[number] = max(self.time.seconds - once - (other.seconds - once) / changed.times, 0.0)

    def _recording(self, changed: Given) -> LaunchRecording:
        given = self.recording
        classes = np.tile(given.cta_class, changed.times) if changed.repeats_grid else given.cta_class
        shared = given.dynamic_shared + changed.shared
        return replace(given, events=changed.events or given.events, cta_class=classes, dynamic_shared=shared)

    def rates(self) -> dict[str, float]:
        """The share of the time that 10 % more of each rate saves."""
        whole = self.time.seconds
        saved = self.saved(*(Given(gpu=_faster(self.gpu, *keys)) for keys in _RATES.values()))
        return {name: seconds / whole for name, seconds in zip(_RATES, saved, strict=True)}

    def one_more_cta(self) -> Change | None:
        """What one more CTA per SM saves, and what that requires; None if the grid has no more CTAs."""
        held = self.time.occupancy
        if held.limit == "grid" or -(-self.recording.ctas // int(self.gpu.chip.sms)) <= held.ctas:
            return None
        roomy, needs = self.roomy(held.ctas + 1)
        (saved,) = self.saved(Given(gpu=roomy))
        return Change("one more CTA per SM", needs, saved / self.time.seconds)

    def roomy(self, ctas: int) -> tuple[Gpu, str]:
        """The GPU with room for `ctas` CTAs per SM, and how the kernel would have to shrink to get the same."""
        return _roomy(self.gpu, self.recording, self.streams, ctas)


def _faster(gpu: Gpu, more: tuple[str, ...], less: tuple[str, ...]) -> Gpu:
    known = gpu.figures()
    changed = {name: float(known[name]) * TENTH for name in more if name in known}
    changed |= {name: float(known[name]) / TENTH for name in less if name in known}
    return gpu.override({name: _plain(value) for name, value in changed.items()})


def _plain(value: float) -> float:
    """A number as in a machine file: with at most nine decimals."""
    return round(value, 9)


def _roomy(gpu: Gpu, recording: LaunchRecording, streams: Streams, ctas: int) -> tuple[Gpu, str]:
    """The GPU with room for `ctas` CTAs per SM, and how the kernel would have to shrink to get the same."""
    sm, warps = gpu.sm, recording.warps
    shared = max(streams.shared_bytes, recording.static_shared) + recording.dynamic_shared
    taken = -(-shared // int(sm.shared_unit)) * int(sm.shared_unit) + int(sm.shared_reserved)
    of_warp = -(-32 * streams.registers // int(sm.register_unit)) * int(sm.register_unit)
    sub_cores = int(sm.sub_cores)
    # a warp's registers are in one sub-core
    registers = -(-ctas * warps // sub_cores) * of_warp * sub_cores
    more_shared = max(taken * ctas - int(sm.shared), 0)
    changes = {
        "sm.registers": max(registers, int(sm.registers)),
        "sm.shared": int(sm.shared) + more_shared,
        # the size of L1 stays the same
        "sm.l1": int(sm.l1) + taken,
        "sm.warps": max(ctas * warps, int(sm.warps)),
        "sm.ctas": max(ctas, int(sm.ctas)),
    }
    needs = []
    if registers > sm.registers:
        room = int(sm.registers / sub_cores) // -(-ctas * warps // sub_cores)
        most = room // int(sm.register_unit) * int(sm.register_unit) // 32
        needs.append(f"at most {most} registers a thread instead of {streams.registers}")
    if more_shared:
        most = (int(sm.shared) // ctas - int(sm.shared_reserved)) // int(sm.shared_unit) * int(sm.shared_unit)
        needs.append(f"at most {max(most, 0):,} bytes of shared memory instead of {shared:,}")
    if ctas * warps > sm.warps:
        needs.append(f"at most {int(sm.warps) // ctas} warps a CTA instead of {warps}")
    if ctas > sm.ctas:
        needs.append(f"CTAs that do more: an SM holds {int(sm.ctas)}")
    return gpu.override(changes), " and ".join(needs)
