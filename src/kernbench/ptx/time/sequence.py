"""Several launches in a row: the gaps between them, by how they are queued, and their total time."""

from dataclasses import dataclass

from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.sass.streams import Streams
from kernbench.ptx.time.result import LaunchTime
from kernbench.result.following import AFTER_TRIGGER, BEFORE_WAIT, WAYS, in_a_row

_PS = 1e12
WAITS, TRIGGERS = "griddepcontrol.wait", "griddepcontrol.launch_dependents"


def following_ps(time: LaunchTime) -> dict[str, int]:
    """Picoseconds that a launch adds after another one, by how it follows it.

    That is the gap (from one empty kernel to the next) and its cycles without cold caches. For launches that begin
    early also how long CTAs run before they wait, and the last ones after they let the next launch begin.
    """
    hertz = time.clock_mhz * 1e6
    own = max(time.cycles - time.cold_cycles, 0.0) / hertz
    found = {way: round((own + time.gaps_ns.get(way, 0.0) * 1e-9) * _PS) for way in WAYS}
    for name, cycles in ((BEFORE_WAIT, time.before_wait), (AFTER_TRIGGER, time.after_trigger)):
        if cycles > 0:
            found[name] = round(cycles / hertz * _PS)
    return found


@dataclass(frozen=True)
class LaunchSequence:
    """Launches of one stream, each dependent on the one before.

    Otherwise they are timed independently: data that one leaves in L2 is not there for the next.
    """

    launches: tuple[LaunchTime, ...]

    def seconds(self, way: str) -> float:
        """The total time, queued in a "stream", in a "graph", or "dependent" (each begun early)."""
        alone = [round(one.seconds * _PS) for one in self.launches]
        total = in_a_row(alone, [following_ps(one) for one in self.launches])
        return total[way] / _PS if total else 0.0


def early(time: LaunchTime, recording: LaunchRecording, streams: Streams) -> tuple[float, float]:
    """Cycles of a CTA before its first warp waits for the launch before, and cycles after its last trigger.

    The second is from when the last CTA lets the next launch begin to the end of the launch. 0 if it does neither. Both
    are taken from the traced CTA.
    """
    followed, opcodes = time.followed, recording.instructions.opcode
    if followed is None or not any(text.startswith("griddepcontrol") for text in opcodes):
        return 0.0, 0.0
    rows = [int(streams.ops.instruction[op]) for op in followed.op]
    names = [opcodes[row] if 0 <= row < len(opcodes) else "" for row in rows]
    waits = [when for name, when in zip(names, followed.issued, strict=True) if name == WAITS]
    triggers = [when for name, when in zip(names, followed.issued, strict=True) if name == TRIGGERS]
    began = min((float(one) for one, cta in zip(time.spans.start, time.spans.cta, strict=True) if cta == followed.cta),
                default=0.0)  # fmt: skip
    last = float(time.spans.start.max(initial=0.0))
    before = max(float(min(waits)) - began, 0.0) if waits else 0.0
    after = max(time.cycles - (last + float(max(triggers)) - began), 0.0) if triggers else 0.0
    return before, after
