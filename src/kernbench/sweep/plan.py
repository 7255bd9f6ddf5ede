"""Which points a sweep visits, and which of them share one functional pass."""

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

from kernbench import machine
from kernbench.bench import Bench
from kernbench.bench.parameters import make
from kernbench.common.errors import BenchError

MOST_POINTS = 100_000
PREFIX = "machine."
Point = dict[str, str]


@dataclass(frozen=True)
class Group:
    """Points that differ only in rates of the machine: `settings` and `shapes` of the machine are the same for all."""

    settings: Point
    shapes: Point
    rates: tuple[Point, ...]


@dataclass(frozen=True)
class Plan:
    """A bench, a panel, settings that hold everywhere, and the points in groups. `keys` are what is swept, in order."""

    bench: str
    panel: str | None
    seed: int
    shapes_only: bool
    keys: tuple[str, ...]
    groups: tuple[Group, ...]

    @property
    def points(self) -> int:
        """How many points there are."""
        return sum(len(g.rates) for g in self.groups)


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
    """Every combination of the values, checked, in groups that share a functional pass."""
    clash = sorted(set(over) & set(settings))
    if clash:
        raise BenchError(f"{', '.join(clash)} is both set and swept")
    count = 1
    for values in over.values():
        count *= len(values)
    if count > MOST_POINTS:
        raise BenchError(f"{count:,} points are more than {MOST_POINTS:,}; sweep fewer values")
    panels = dict(bench.panels.get(panel or "", {}))
    known = _Machines()
    groups: dict[Any, tuple[Point, Point, list[Point]]] = {}
    for chosen in product(*over.values()):
        point = {k: str(v) for k, v in {**settings, **dict(zip(over, chosen, strict=True))}.items()}
        plain, shapes, rates = _split(bench, panels, point, known)
        group = groups.setdefault((tuple(plain.items()), tuple(shapes.items())), (plain, shapes, []))
        group[2].append(rates)
    made = tuple(Group(plain, shapes, tuple(rates)) for plain, shapes, rates in groups.values())
    return Plan(bench.file or bench.name, panel, seed, shapes_only, tuple(over), made)


class _Machines:
    """What is known of the machines of a plan, so that each value is checked once and not at every point."""

    def __init__(self) -> None:
        self._load = cache(machine.load)
        self._checked: set[tuple[str, tuple[tuple[str, str], ...]]] = set()

    def roles(self, name: str) -> dict[str, str]:
        """The role of each key: shape or rate."""
        return {key: entry.role for key, entry, _ in self._load(name).entries()}

    def check(self, name: str, changes: Point) -> None:
        """Whether the machine takes these changes; raises what is wrong with them."""
        mark = (name, tuple(changes.items()))
        if mark not in self._checked:
            self._load(name).override(changes)
            self._checked.add(mark)


def _split(bench: Bench, panel: dict[str, Any], point: Point, known: _Machines) -> tuple[Point, Point, Point]:
    """Parameters of the bench, shape keys and rate keys of the machine; all checked."""
    plain = {k: v for k, v in point.items() if not k.startswith(PREFIX)}
    p = make(bench.parameters, {**panel, **plain})
    name = getattr(p, "machine", "reference")
    roles = known.roles(name)
    changes = {k.removeprefix(PREFIX): v for k, v in point.items() if k.startswith(PREFIX)}
    shapes = {k: v for k, v in changes.items() if roles.get(k) != "rate"}
    rates = {k: v for k, v in changes.items() if roles.get(k) == "rate"}
    # shapes may contradict each other, rates cannot
    for change in (shapes, *({k: v} for k, v in rates.items())):
        known.check(name, change)
    return plain, _prefixed(shapes), _prefixed(rates)


def _prefixed(changes: Point) -> Point:
    return {PREFIX + k: v for k, v in changes.items()}
