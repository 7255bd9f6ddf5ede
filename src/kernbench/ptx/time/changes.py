"""What a change would save: the same recording and streams, timed again on a modified GPU or with modified accesses.

A launch is timed again for each change, several changes in parallel. For small launches that takes a fraction of a
second; larger ones are timed again only on request (`--sensitivity`). Nothing is run or joined again.
"""

from dataclasses import dataclass, replace
from functools import partial

from kernbench.common.errors import KernbenchError
from kernbench.ptx.machine import Gpu
from kernbench.ptx.recording.recording import Events, LaunchRecording
from kernbench.ptx.sass.streams import Streams
from kernbench.ptx.time.launch import time_launch
from kernbench.ptx.time.result import LaunchTime
from kernbench.safety.processes.threads import together

# launches up to this many simulated instructions are timed again by default: all changes take about a second
MOST_UNASKED = 200_000
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
    """What differs when a launch is timed again; None: unchanged."""

    gpu: Gpu | None = None
    events: Events | None = None
    streams: Streams | None = None


@dataclass(frozen=True)
class Again:
    """A launch timed on a GPU, to be timed again."""

    recording: LaunchRecording
    streams: Streams
    gpu: Gpu
    time: LaunchTime

    @property
    def small(self) -> bool:
        """Whether it is timed again by default."""
        return self.time.simulated <= MOST_UNASKED

    def saved(self, *changes: Given) -> list[float]:
        """Seconds that each of the changes saves; never negative.

        They are timed in parallel: the model works on arrays of its own, in machine code that releases the GIL.
        """
        found: dict[int, float] = {}
        together(partial(self._save, found, number, changed) for number, changed in enumerate(changes))
        return [found[number] for number in range(len(changes))]

    def _save(self, found: dict[int, float], number: int, changed: Given) -> None:
        recording = self.recording if changed.events is None else replace(self.recording, events=changed.events)
        try:
            other = time_launch(recording, changed.streams or self.streams, changed.gpu or self.gpu)
        except KernbenchError:
            found[number] = 0.0
        else:
            found[number] = max(self.time.seconds - other.seconds, 0.0)

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
        roomy, needs = _roomy(self.gpu, self.recording, self.streams, held.ctas + 1)
        (saved,) = self.saved(Given(gpu=roomy))
        return Change("one more CTA per SM", needs, saved / self.time.seconds)


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
