"""The least `.version` and `.target` that have all of a kernel's instructions, or a check of the given ones."""

from dataclasses import dataclass

from kernbench.common.errors import unknown
from kernbench.ptx.builder.values.errors import PtxBuildError
from kernbench.ptx.isa.forms.form import Form, Resolved
from kernbench.ptx.isa.since import has_target, since
from kernbench.ptx.isa.special import SpecialRegister
from kernbench.ptx.isa.targets import TARGETS as EVERY_TARGET
from kernbench.result.finding import SourceLocation

__kernbench_internal__ = True

# targets that ptxas 13 still supports, oldest first, with the first version that names them
_NAMES = [f"sm_{n}" for n in (75, 80, 86, 87, 89)]
_NAMES += [f"sm_{n}{kind}" for n in (90, 100, 103, 110, 120, 121) for kind in ("", "a")]
TARGETS = {name: EVERY_TARGET[name] for name in _NAMES}


@dataclass(frozen=True, slots=True)
class Demand:
    """What one instruction or special register requires, and the Python line of its first use."""

    name: str
    form: Form | None
    sm: int
    version: tuple[int, int]
    where: SourceLocation

    def met_by(self, target: str) -> bool:
        """Whether the target has it."""
        if self.form is not None:
            return has_target(self.form, self.sm, target)
        return int(target.removeprefix("sm_").rstrip("af")) >= self.sm

    @property
    def text(self) -> str:
        """The targets that have it, as text."""
        first = next((target for target in TARGETS if self.met_by(target)), f"sm_{self.sm}")
        family = self.form.family if self.form is not None else ""
        return first if family not in ("", "a") else f"{first} or later"


class Needs:
    """Collects demands; raises an error for the first that cannot be met."""

    def __init__(self, target: str | None = None, version: tuple[int, int] | None = None):
        if target is not None and target not in TARGETS:
            raise PtxBuildError(unknown("target", target, TARGETS))
        self.target = target
        self.version = version
        self.possible = [target] if target is not None else list(TARGETS)
        self.demands: dict[tuple[Form | None, int, tuple[int, int], str], Demand] = {}

    def instruction(self, resolved: Resolved, name: str, where: SourceLocation) -> None:
        """Add the demands of an instruction."""
        first = since(resolved)
        key = resolved.form, first.sm, first.version, ""
        if key not in self.demands:
            self.add(Demand(name, resolved.form, first.sm, first.version, where))

    def special(self, register: SpecialRegister, where: SourceLocation) -> None:
        """Add the demands of a special register."""
        self.add(Demand(register.name, None, register.sm, register.version, where))

    def feature(self, name: str, sm: int, version: tuple[int, int], where: SourceLocation) -> None:
        """Add the demands of anything else that not all targets have."""
        self.add(Demand(name, None, sm, version, where))

    def add(self, demand: Demand) -> None:
        """Add a demand; raises an error if no target is left, or the given version is too old."""
        key = demand.form, demand.sm, demand.version, "" if demand.form else demand.name
        if key in self.demands:
            return
        if self.version is not None and demand.version > self.version:
            raise PtxBuildError(
                f"{demand.name} needs .version {_dotted(demand.version)}, and the kernel is built for "
                f"{_dotted(self.version)}",
                demand.where,
            )
        left = [target for target in self.possible if demand.met_by(target)]
        if not left:
            raise PtxBuildError(self._impossible(demand), demand.where)
        self.possible = left
        self.demands[key] = demand

    def _impossible(self, demand: Demand) -> str:
        if self.target is not None:
            return f"{demand.name} needs {demand.text}, and the kernel is built for {self.target}"
        other = next(d for d in self.demands.values() if not any(map(d.met_by, filter(demand.met_by, TARGETS))))
        return f"{demand.name} needs {demand.text}, but {other.name} ({other.where}) needs {other.text}"

    def merge(self, other: "Needs") -> None:
        """Add the demands of a function to those of its caller."""
        for demand in other.demands.values():
            self.add(demand)

    def chosen(self) -> tuple[str, tuple[int, int]]:
        """Target and version of the module."""
        target = self.possible[0]
        version = max([TARGETS[target], *(demand.version for demand in self.demands.values())])
        if self.version is not None and self.version < TARGETS[target]:
            raise PtxBuildError(
                f"{target} needs .version {_dotted(TARGETS[target])}, and the kernel is built for "
                f"{_dotted(self.version)}"
            )
        return target, self.version or version


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
