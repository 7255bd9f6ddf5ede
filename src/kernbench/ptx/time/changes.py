"""What a change would save: the same recording and streams timed again on a GPU or with accesses that differ a bit.

A launch is timed again for each change, several changes at once. For small launches that is a part of a second; larger
ones are timed again only when asked (`--sensitivity`). Nothing is run or joined anew.
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

# simulated instructions up to which a launch is timed again without being asked to: all changes take about a second
MOST_UNASKED = 200_000
TENTH = 1.1
# figures of a GPU that are a rate, by the name of what would be faster: more of the first, less of the second
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
    """What would change, what it needs, and the share of the time that it saves."""

    what: str
    needs: str
    saves: float


@dataclass(frozen=True)
class Given:
    """What is different when a launch is timed again; None: what it was timed with."""

    gpu: Gpu | None = None
    events: Events | None = None
    streams: Streams | None = None


@dataclass(frozen=True)
class Again:
    """A launch that was timed on a GPU, to be timed again."""

    recording: LaunchRecording
    streams: Streams
    gpu: Gpu
    time: LaunchTime

    @property
    def small(self) -> bool:
        """Whether it is timed again without being asked to."""
        return self.time.simulated <= MOST_UNASKED

    def saved(self, *changes: Given) -> list[float]:
        """Seconds that the launch is faster with each of the changes; never negative.

        They are timed at once: the model has only its own arrays, and is machine code that does not hold Python.
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
        """Share of the time that 10 % more of each rate saves."""
        whole = self.time.seconds
        saved = self.saved(*(Given(gpu=_faster(self.gpu, *keys)) for keys in _RATES.values()))
        return {name: seconds / whole for name, seconds in zip(_RATES, saved, strict=True)}

    def one_more_cta(self) -> Change | None:
        """What an SM that holds one more CTA saves, and what that needs; None where the grid has no more of them."""
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
    """A figure as a file may give it: with at most nine decimals."""
    return round(value, 9)


def _roomy(gpu: Gpu, recording: LaunchRecording, streams: Streams, ctas: int) -> tuple[Gpu, str]:
    """The GPU with room for so many CTAs in an SM, and what the kernel would have to take instead."""
    sm, warps = gpu.sm, recording.warps
    shared = max(streams.shared_bytes, recording.static_shared) + recording.dynamic_shared
    taken = -(-shared // int(sm.shared_unit)) * int(sm.shared_unit) + int(sm.shared_reserved)
    of_warp = -(-32 * streams.registers // int(sm.register_unit)) * int(sm.register_unit)
    sub_cores = int(sm.sub_cores)
    # a warp's registers lie in one sub-core
    registers = -(-ctas * warps // sub_cores) * of_warp * sub_cores
    more_shared = max(taken * ctas - int(sm.shared), 0)
    changes = {
        "sm.registers": max(registers, int(sm.registers)),
        "sm.shared": int(sm.shared) + more_shared,
        # what is left for L1 stays
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
