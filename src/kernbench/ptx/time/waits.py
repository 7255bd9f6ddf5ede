"""Waits that a time does not include: for stores of others (of which one iteration is timed), and for a clock."""

from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.time.sources import source_lines

LOWER_BOUND = "a lower bound: waits for what others store to memory are not timed"
# largest number of lines that are named
_MOST_NAMED = 4


def waits_in_words(recording: LaunchRecording) -> list[str]:
    """Notes on these waits, with the lines at which warps wait."""
    found = []
    waiting = []
    if recording.waits:
        chain = f"; {recording.handovers:,} of them, one behind the other, are the least" if recording.handovers else ""
        others = "other CTAs" if recording.ctas > 1 else "other warps"
        waiting.append(f"at {_named(recording, recording.waits)} warps wait for what {others} store{chain}")
    if recording.waits_in_shared:
        where = _named(recording, recording.waits_in_shared)
        waiting.append(f"at {where} for what others store to shared memory")
    if waiting:
        found.append(f"{LOWER_BOUND}: {'; '.join(waiting)}")
    return found


def why_unknown(recording: LaunchRecording) -> str:
    """Why the time of the launch cannot be predicted; empty if it can."""
    if not recording.clocks:
        return ""
    where = _named(recording, recording.clocks)
    return f"a loop goes on until a clock says so, at {where}, and clocks count instructions here"


def _named(recording: LaunchRecording, lines: tuple[int, ...]) -> str:
    """Lines, in the source if the PTX names it."""
    sources = source_lines(recording.text)
    names = [str(sources[line]) if line in sources else f"line {line}" for line in lines]
    names = list(dict.fromkeys(names))
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
