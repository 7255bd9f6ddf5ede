"""Which points a sweep visits, and which of them share one functional pass."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from math import prod
from typing import Any

from kernbench.bench import Bench
from kernbench.bench.machines import CHIP, load_machine, machine_changes, machine_name, split_settings
from kernbench.bench.parameters import make
from kernbench.common.errors import BenchError, KernbenchError, unknown

MOST_POINTS = 100_000
UNREADABLE = "not readable"
Point = dict[str, str]
Items = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Group:
    """Points that differ only in rates of the machine: `settings` and `shapes` of the machine are the same for all.

    `refused` says why its points cannot be run, where that is known beforehand; all their settings are in `settings`.
    """

    settings: Point
    shapes: Point
    rates: tuple[Point, ...]
    refused: str = ""

    def points(self) -> Iterator[Point]:
        """All settings of each point."""
        return ({**self.settings, **self.shapes, **rates} for rates in self.rates)


@dataclass(frozen=True)
class Plan:
    """A bench, a panel and the points in groups. `keys` are what is swept, in order.

    `over` holds the values of each key, `fixed` the settings that are the same everywhere, and `machines` the hash of
    each machine before any of its keys is changed. `target` is what its benches run on.
    """

    bench: str
    panel: str | None
    seed: int
    shapes_only: bool
    keys: tuple[str, ...]
    groups: tuple[Group, ...]
    over: tuple[tuple[str, tuple[str, ...]], ...] = ()
    fixed: Items = ()
    machines: Items = ()
    target: str = "mesh"

    @property
    def points(self) -> int:
        """How many points there are."""
        return sum(len(g.rates) for g in self.groups)

    def light(self) -> "Plan":
        """What whoever is given single groups needs of the plan."""
        return replace(self, groups=(), over=(), fixed=(), machines=())


def parse_over(texts: list[str]) -> dict[str, list[str]]:
    """`key=a,b,c` texts as a dictionary."""
    over: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        items = [v.strip() for v in values.split(",") if v.strip()]
        if not equals or not key.strip() or not items:
            raise BenchError(
                f"--over {text!r}: key=value,value,... is wanted, such as --over machine.hbm.bandwidth=256,512"
            )
        if key.strip() in over:
            raise BenchError(f"--over names {key.strip()} twice")
        over[key.strip()] = items
    if not over:
        raise BenchError("a sweep needs at least one --over key=value,value,...")
    return over


def make_plan(
    bench: Bench,
    panel: str | None,
    settings: dict[str, Any],
    over: dict[str, list[str]],
    seed: int = 0,
    shapes_only: bool = False,
) -> Plan:
    """Every combination of the values, checked, in groups that share a functional pass.

    A point that cannot be is kept with the reason; where that is so of every point, the first reason is raised.
    """
    _check(bench, panel, settings, over)
    panels = dict(bench.panels.get(panel or "", {}))
    fixed = {k: str(v) for k, v in settings.items()}
    known = _Machines()
    errors: list[KernbenchError] = []
    groups: dict[tuple[Items, Items, str], list[Point]] = {}
    for chosen in product(*over.values()):
        point = fixed | dict(zip(over, map(str, chosen), strict=True))
        try:
            plain, shapes, rates = _split(bench, panels, point, known)
            refused = ""
        except KernbenchError as error:
            errors.append(error)
            plain, shapes, rates, refused = point, {}, {}, told(error)
        groups.setdefault((tuple(plain.items()), tuple(shapes.items()), refused), []).append(rates)
    if all(refused for _, _, refused in groups):
        raise errors[0]
    return Plan(
        bench.file or bench.name,
        panel,
        seed,
        shapes_only,
        tuple(over),
        tuple(Group(dict(plain), dict(shapes), tuple(rates), why) for (plain, shapes, why), rates in groups.items()),
        tuple((key, tuple(map(str, values))) for key, values in over.items()),
        tuple(fixed.items()),
        tuple(known.hashes.items()),
        "npu" if any(field.name == CHIP for field in fields(bench.parameters)) else "mesh",
    )


def told(error: KernbenchError) -> str:
    """What an error says, on one line of a file."""
    return "; ".join(str(error).splitlines()).encode(errors="replace").decode()


def _check(bench: Bench, panel: str | None, settings: dict[str, Any], over: dict[str, list[str]]) -> None:
    """What can be seen before any point is made."""
    if panel is not None and panel not in bench.panels:
        raise BenchError(unknown(f"panel of {bench.name}", panel, bench.panels or ["none: this bench has no panels"]))
    clash = sorted(set(over) & set(settings))
    if clash:
        raise BenchError(f"{', '.join(clash)} is both set and swept")
    count = prod(map(len, over.values()))
    if count > MOST_POINTS:
        raise BenchError(f"{count:,} points are more than {MOST_POINTS:,}; sweep fewer values")
    for key, values in over.items():
        twice = [value for value, times in Counter(values).items() if times > 1]
        if twice:
            raise BenchError(f"--over {key} names {twice[0]} twice; name each value once")
        odd = [value for value in values if not str(value).isprintable()]
        if odd:
            raise BenchError(f"--over {key}: {odd[0]!r} holds characters that no file of results can")


class _Machines:
    """What is known of the machines of a plan, so that each value is checked once and not at every point."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}
        self._checked: set[tuple[str, Items]] = set()
        self.hashes: dict[str, str] = {}

    def _load(self, p: Any) -> Any:
        name = machine_name(p)
        if name not in self._loaded:
            self._loaded[name] = load_machine(p)
        return self._loaded[name]

    def roles(self, p: Any) -> dict[str, str]:
        """The role of each key of the machine that parameters ask for: shape or rate."""
        self.hashes.setdefault(machine_name(p), UNREADABLE)
        found = self._load(p)
        self.hashes[machine_name(p)] = found.hash
        return {key: entry.role for key, entry, _ in found.entries()}

    def check(self, p: Any, changes: Point) -> None:
        """Whether the machine takes these changes; raises what is wrong with them."""
        mark = (machine_name(p), tuple(changes.items()))
        if mark not in self._checked:
            self._load(p).override(changes)
            self._checked.add(mark)


def _split(bench: Bench, panel: dict[str, Any], point: Point, known: _Machines) -> tuple[Point, Point, Point]:
    """Parameters of the bench, shape keys and rate keys of the machine; all checked."""
    plain, settings = split_settings(point)
    p = make(bench.parameters, {**panel, **plain})
    changes = machine_changes(bench.name, p, settings)
    names = dict(zip(changes, settings, strict=True))
    roles = known.roles(p)
    shapes = {k: v for k, v in changes.items() if roles.get(k) != "rate"}
    rates = {k: v for k, v in changes.items() if roles.get(k) == "rate"}
    # shapes may contradict each other, rates cannot
    for change in (shapes, *({k: v} for k, v in rates.items())):
        known.check(p, change)
    return plain, {names[k]: v for k, v in shapes.items()}, {names[k]: v for k, v in rates.items()}
