"""What a launch gives back, on every target. Tables, traces, the CLI and tests depend only on this."""

from kernbench.result.comparison import Comparison, RankError
from kernbench.result.finding import KINDS, Finding, FindingLog, Kind, Other, SourceLocation
from kernbench.result.load import Loaded, load_runs
from kernbench.result.recording import Recording, Stream
from kernbench.result.run import Run, Status

__all__ = [
    "KINDS",
    "Comparison",
    "Finding",
    "FindingLog",
    "Kind",
    "Loaded",
    "Other",
    "RankError",
    "Recording",
    "Run",
    "SourceLocation",
    "Status",
    "Stream",
    "load_runs",
]
