"""The interface of targets for the other packages. All methods have defaults that work for any `Run`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self

from kernbench.common.errors import BenchError
from kernbench.result.untimed import no_time

if TYPE_CHECKING:
    from kernbench.machine.description import Description
    from kernbench.result.finding import SourceLocation
    from kernbench.result.run import Run
    from kernbench.targets.work import Work

TEMPLATE = "template.py.txt"
# metrics of every run with `metrics["time_ps"]`, which reports and sweeps use
TIMED_METRICS = ("bound", "floor_ratio", "floors_ps", "gap_ps", "utilisation")


class Machines(Protocol):
    """Machine files of one kind."""

    @property
    def default(self) -> str:
        """The machine of a bench that names none."""

    def bundled(self) -> list[str]:
        """Names of the machines that come with the target."""

    def load(self, name: object) -> Any:
        """The machine of a bundled name or a file: a `Description`, with the target's own keys."""

    def owns(self, name: str) -> bool:
        """Whether a name or file is of this kind, and of no other; an unreadable file is not."""

    def size(self, machine: Any) -> str:
        """The size of a machine, in words for a list."""


def check_timed(run: "Run") -> "Run":
    """Check that `run`, as a target timed it, has all metrics that reports use."""
    metrics = run.metrics
    if "time_ps" not in metrics:
        return run
    missing = [name for name in TIMED_METRICS if name not in metrics]
    if not missing and metrics["bound"] not in metrics["floors_ps"]:
        missing = [f"floors_ps[{metrics['bound']!r}], the floor of what bounds it"]
    if missing:
        raise BenchError(
            f"target {run.origin.get('target', '(unknown)')} gave a run a time without {', '.join(missing)} in its "
            f"metrics: its retime has to give {', '.join(TIMED_METRICS)} (docs/adding-a-target.md)"
        )
    return run


class Timing(Protocol):
    """A recording timed on a machine."""

    def again(self, machine: object) -> Self:
        """The same recording on a machine that differs in rates only."""


@dataclass(frozen=True)
class Measured:
    """Names in the metrics of a timed run; a sweep has a column for each.

    `floors` are keys of `floors_ps`, `engines` of `utilisation`, `causes` of `gap_ps`; `bounds` are
    the possible bounds of a run besides the floors.
    """

    floors: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()


class Target:
    """A target for the other packages: a subclass overrides what its kind of program supports.

    A run belongs to a target by `origin["target"]`, which is its `name`.
    """

    name: str = ""
    # why a run without a recording has no time
    no_clock: str = "this target has an order, but no clock"
    # what the outputs of a launch are, to complete the sentence "outputs are ..."
    outputs_are: str = "what the launch gave back"

    def measured(self) -> Measured:
        """Names in the metrics of its timed runs."""
        return Measured()

    @property
    def machines(self) -> Machines:
        """Its machine files; only called for a target with a machine parameter."""
        raise BenchError(f"target {self.name or '(unknown)'} has no machine files")

    def template(self) -> str:
        """The text that `kernbench new` writes, with NAME in place of the bench's name."""
        package = type(self).__module__.rpartition(".")[0]
        try:
            # a top-level module has no package folder
            return (files(package) / TEMPLATE).read_text(encoding="utf-8") if package else self._no_template()
        except OSError:
            return self._no_template()

    def _no_template(self) -> NoReturn:
        raise BenchError(
            f"target {self.name or '(unknown)'} has no template: give its Target ({type(self).__name__}) a method "
            f"template() that returns the text, put {TEMPLATE} into its package, or list it without one"
        )

    def record_for_time(self, host: Any) -> None:
        """Called before a launch that will be timed, for a target that must record more for it."""

    def compute_exactly(self, host: object) -> None:
        """Called before a launch whose results should have the hardware's own bits, if that costs time.

        A target without such a mode refuses, so that its results are not mistaken for exact ones.
        """
        raise BenchError(
            f"--exact: target {self.name or '(unknown)'} has one way of computing, and no hardware whose bits are known"
        )

    def run_part(self, host: object, part: str) -> None:
        """Called before a launch of which only a part is to run, named in the target's own way; the run's
        `views["part"]` then has how much was `run`, and `of` how much. A target that runs everything refuses.
        """
        raise BenchError(f"--blocks: target {self.name or '(unknown)'} has no blocks of a grid, and runs everything")

    def retime(self, run: "Run", machine: "Description", drawn: bool = True) -> "Run":
        """The run with its time on `machine`: `metrics["time_ps"]` and `TIMED_METRICS`, as in `summary`,
        and, if `drawn`, a timeline and its views. docs/adding-a-target.md lists further metrics.
        A run that gets no time has the reason in `metrics["no_time"]`.
        """
        return replace(run, metrics={**run.metrics, "no_time": no_time(run, self.no_clock) or self.no_clock})

    def retime_with_changes(self, run: "Run", machine: "Description", drawn: bool = True) -> "Run":
        """The same with what changes to the machine or the kernel would save, if that takes long and `retime` leaves
        it out.
        """
        return self.retime(run, machine, drawn)

    def time_recording(self, recording: object, machine: object) -> Timing:
        """A recording timed for the first time; a sweep times it again and again."""
        raise BenchError(f"target {self.name or '(unknown)'} records nothing that can be timed on a machine")

    def summary(self, timing: object) -> dict[str, object]:
        """The values of a timing that a sweep stores: `time_ps` and `TIMED_METRICS`."""
        raise NotImplementedError

    def explain(self, cause: str) -> str:
        """The meaning of a cause of lost time and common remedies, in a sentence; empty if it has none."""
        return ""

    def joined_views(self, launches: "Sequence[Run]", begins: Sequence[int]) -> Mapping[str, object]:
        """Views of several timed launches as one run; `begins` is when each begins."""
        return {}

    def commands_of(self, run: "Run", rank: int) -> Sequence[Any] | None:
        """The commands of a rank of a run; None if nothing is recorded by rank."""
        return None

    def check_device(self, device: str) -> None:
        """Raise an error if nothing can run on a device that a bench names; emulated devices are always available."""

    def order_observers(self, host: object, kernel: object) -> list[str]:
        """Operations in a kernel that may legally observe the order in which its threads run."""
        return []

    def writer_of(self, host: object, run: "Run", output: str, index: tuple[int, ...]) -> "SourceLocation | None":
        """The kernel's line that last stored an element of an output of a run on `host`; None if it is not known."""
        return None

    def compared_works(self, first: "Run", second: "Run") -> "tuple[Work, Work] | None":
        """The operations of the programs of a launch in two orders, in comparable form; None if there is no such
        recording, or if programs cannot share anything but memory.
        """
        return None
