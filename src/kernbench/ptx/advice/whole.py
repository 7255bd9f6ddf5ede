"""Mends of the launch as a whole: how many CTAs an SM holds, how many there are, and how they end."""

from collections.abc import Iterator

from kernbench.common.errors import KernbenchError
from kernbench.ptx.advice.mend import Launch, Mend, Sure
from kernbench.ptx.time.changes import Given
from kernbench.ptx.time.chip.occupancy import occupancy

# CTAs of fewer warps than this may be joined to such with as many
WARPS = 8
# a grid is small if it fills at most this part of what the GPU holds
PART = 0.6


def whole(launch: Launch) -> Iterator[Mend]:
    """All mends of the whole launch."""
    yield from _tail(launch)
    yield from _occupancy(launch)
    yield from _grid(launch)
    yield from _blocks(launch)


def _tail(launch: Launch) -> Iterator[Mend]:
    time = launch.time
    waves = len(set(zip(time.spans.group.tolist(), time.spans.slot.tolist(), strict=True))) < len(time.spans.cta)
    if not waves:
        return
    message = "SMs run out of CTAs while others still work: a tail wave"
    hint = "a grid of whole waves, smaller CTAs, or a persistent kernel"
    seconds = time.tail_cycles / (time.clock_mhz * 1e6)
    yield Mend("tail wave", 0, message, hint, Sure.LIKELY, Given(), seconds)


def _occupancy(launch: Launch) -> Iterator[Mend]:
    again, held = launch.again, launch.again.time.occupancy
    if held.limit not in ("registers", "shared memory"):
        return
    most = held.most_warps // launch.recording.warps
    for ctas in sorted({held.ctas + 1, 2 * held.ctas, 3 * held.ctas, 4 * held.ctas, most}):
        if not held.ctas < ctas <= most:
            continue
        gpu, needs = again.roomy(ctas)
        message = f"{held.limit} let an SM hold no more than {held.ctas} CTAs, {held.warps} of {held.most_warps} warps"
        hint = f"{ctas} CTAs an SM need {needs}"
        yield Mend("low occupancy", 0, message, hint, Sure.LIKELY, Given(gpu=gpu))


def _grid(launch: Launch) -> Iterator[Mend]:
    """A grid that does not fill the GPU, as if its work were in so many more CTAs that it did."""
    recording, gpu, time = launch.recording, launch.again.gpu, launch.again.time
    try:
        shared = max(launch.streams.shared_bytes, recording.static_shared) + recording.dynamic_shared
        held = occupancy(gpu, recording.warps, launch.streams.registers, shared, 1 << 30)
    except KernbenchError:
        return
    slots = held.ctas * int(gpu.chip.sms)
    full = slots // max(recording.ctas, 1)
    if recording.ctas > PART * slots or full < 2 or launch.recording.cluster != (1, 1, 1):
        return
    times = next((one for one in (full, full // 2, full // 4, full // 8) if one > 1 and launch.timed_soon(one)), 2)
    holds = f"{time.occupancy.ctas} of {held.ctas} CTAs" if recording.ctas >= int(gpu.chip.sms) else "none, or one CTA"
    message = f"{recording.ctas:,} CTAs do not fill the GPU: an SM has {holds}"
    hint = f"{full} times as many CTAs with less work each, if the work can be divided (split the longest loop)"
    given = Given(times=times, repeats_grid=True)
    yield Mend("small grid", 0, message, hint, Sure.LIKELY, given)


def _blocks(launch: Launch) -> Iterator[Mend]:
    """CTAs of few warps, as if there were fewer with more warps each."""
    gpu, warps = launch.again.gpu, launch.recording.warps
    together = WARPS // warps
    if together < 2 or launch.recording.ctas < 2 * int(gpu.chip.sms):
        return
    roomy = gpu.override({
        "launch.cta": round(float(gpu.launch.cta) / together, 9), "sm.ctas": int(gpu.sm.ctas) * together,
    })  # fmt: skip
    message = f"{launch.recording.ctas:,} CTAs have {warps} of {WARPS} warps each: the GPU starts one after the other"
    hint = f"blocks of {32 * warps * together} threads"
    yield Mend("small blocks", 0, message, hint, Sure.LIKELY, Given(gpu=roomy))
