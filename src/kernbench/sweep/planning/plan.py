"""The points of a sweep, and which of them share one functional pass. Points are generated on demand."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import islice, product
from math import prod
from types import SimpleNamespace
from typing import Any

from kernbench.bench import Bench
from kernbench.bench.definition.machines import (
    load_machine,
    machine_changes,
    machine_key,
    machine_name,
    machine_parameter,
    split_settings,
)
from kernbench.bench.definition.parameters import make
from kernbench.common.errors import BenchError, KernbenchError, unknown
from kernbench.machine.keys import Key
from kernbench.result.reading import Data
from kernbench.sweep.planning.meanings import alike, meaning_of, plain_numbers
from kernbench.sweep.planning.values import Axis, axis_of, parse_values
from kernbench.targets.registry import DEFAULT, of_parameters

# most points that are checked before a sweep begins, for whether any can be run
MOST_CHECKED = 1000
UNREADABLE = "not readable"
# characters of an error's text in a row; for the rest, run the point again
_LONGEST = 300
Point = dict[str, str]
Items = tuple[tuple[str, str], ...]
# a point as the indices of its values on each axis
Position = tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Points that differ only in rates of the machine: `settings` and `shapes` of the machine are the same for all.

    Settings of the machine that are the same everywhere are among `shapes`, even if they change rates.
    """

    settings: Point
    shapes: Point
    rates: tuple[Point, ...]

    def points(self) -> Iterator[Point]:
        """All settings of each point."""
        return ({**self.settings, **self.shapes, **rates} for rates in self.rates)


@dataclass(frozen=True)
class Plan:
    """A bench, a panel and the values of each swept key: every combination is a point.
    `keys` are the swept keys, in order, and `axes` their values; `rates` are those keys that only change rates of the
    machine. `fixed` are the settings that are the same everywhere, and `machines` the hash of each machine before any
    of its keys is changed. `target` is the bench's target, `name` the name or path the bench was given by.
    """

    bench: str
    panel: str | None
    seed: int
    shapes_only: bool
    keys: tuple[str, ...]
    axes: tuple[Axis, ...] = ()
    rates: frozenset[str] = frozenset()
    fixed: Items = ()
    machines: Items = ()
    target: str = DEFAULT.name
    name: str = ""

    @property
    def points(self) -> int:
        """How many points there are."""
        return prod(map(len, self.axes))

    @property
    def passes(self) -> int:
        """How often the kernel has to run."""
        return prod(len(axis) for key, axis in zip(self.keys, self.axes, strict=True) if key not in self.rates)

    def choices(self) -> Iterator[Position]:
        """The functional passes: the index of each key's value, 0 for a key that is a rate."""
        return product(
            *((0,) if key in self.rates else range(len(axis)) for key, axis in zip(self.keys, self.axes, strict=True))
        )

    def positions(self, choice: Position) -> Iterator[Position]:
        """The points of one functional pass, in order."""
        axes = zip(self.keys, self.axes, choice, strict=True)
        return product(*(range(len(axis)) if key in self.rates else (index,) for key, axis, index in axes))

    def in_group(self) -> int:
        """How many points share one functional pass."""
        return self.points // max(1, self.passes)

    def point(self, position: Position) -> Point:
        """The swept values of a point."""
        return {key: axis[index] for key, axis, index in zip(self.keys, self.axes, position, strict=True)}

    def group(self, positions: list[Position]) -> Group:
        """Points of one functional pass, in the form for a worker."""
        points = [self.point(position) for position in positions]
        shared = {**dict(self.fixed), **{k: v for k, v in points[0].items() if k not in self.rates}}
        plain, shapes = split_settings(shared)
        return Group(plain, shapes, tuple({k: v for k, v in p.items() if k in self.rates} for p in points))

    def light(self) -> "Plan":
        """The part of the plan that is needed to run single groups."""
        return replace(self, axes=(), rates=frozenset(), fixed=(), machines=())

    def command(self, point: Mapping[str, object]) -> str:
        """The command that runs one point by itself."""
        settings = {**dict(self.fixed), **{key: point[key] for key in self.keys}}
        words = ["kernbench", "run", self.name or self.bench, *(("-p", self.panel) if self.panel else ())]
        words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        words += ["--seed", str(self.seed)] if self.seed else []
        return shlex.join([*words, *(["--shapes-only"] if self.shapes_only else [])])


def parse_over(texts: list[str]) -> dict[str, list[str]]:
    """`key=a,b,c` texts as a dictionary; ranges are left as they are."""
    over: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        items = parse_values(values)
        if not equals or not key.strip() or not items:
            raise BenchError(
                f"--over {text!r}: key=value,value,... is wanted, such as --over machine.hbm.bandwidth=256,512 or "
                "--over n_ranks=1..16"
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
    settings: Data,
    over: Mapping[str, list[str]],
    seed: int = 0,
    shapes_only: bool = False,
    name: str = "",
) -> Plan:
    """Every combination of the values; those of a key may be ranges.

    Points that cannot be run are found when they are run. If that holds for every point (of the first
    `MOST_CHECKED`), the first reason is raised.
    """
    axes = _axes(bench, panel, settings, over)
    target = of_parameters([field.name for field in fields(bench.parameters)]).name
    fixed = {k: str(v) for k, v in settings.items()}
    plan = Plan(
        bench.file or bench.name,
        panel,
        seed,
        shapes_only,
        tuple(over),
        tuple(axes.values()),
        fixed=tuple(fixed.items()),
        target=target,
        name=name or bench.name,
    )
    checked = _Checked(bench, dict(bench.panels.get(panel or "", {})), plan)
    plan = replace(plan, rates=checked.rates())
    checked.each_once()
    return replace(plan, machines=tuple(checked.hashes(plan).items()))


def one_line(error: BaseException) -> str:
    """The text of an error on one line, truncated if very long."""
    text = "; ".join(str(error).splitlines()).encode(errors="replace").decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters in all)"


def _axes(
    bench: Bench, panel: str | None, settings: Mapping[str, object], over: Mapping[str, list[str]]
) -> dict[str, Axis]:
    """The values of each key, with the checks that need no point."""
    if panel is not None and panel not in bench.panels:
        raise BenchError(unknown(f"panel of {bench.name}", panel, bench.panels or ["none: this bench has no panels"]))
    clash = sorted(set(over) & set(settings))
    if clash:
        raise BenchError(f"{', '.join(clash)} is both set and swept")
    axes = {}
    for key, values in over.items():
        try:
            axes[key] = axis_of(plain_numbers(values, bench.parameters, key) if isinstance(values, list) else values)
        except BenchError as error:
            raise BenchError(f"--over {key}: {error}") from None
        twice = axes[key].repeated()
        if twice is not None:
            raise BenchError(f"--over {key} names {twice} twice; name each value once")
        odd = [value for value in values if not str(value).isprintable()]
        if odd:
            raise BenchError(f"--over {key}: {odd[0]!r} holds characters that no file of results can")
    return axes


class _Checked:
    """A plan's first points that can be run, and the properties of its machines."""

    def __init__(self, bench: Bench, panel: dict[str, object], plan: Plan):
        self._bench, self._panel, self._plan = bench, panel, plan
        self._loaded: Data = {}
        self._keys: dict[str, Key] = {}

    def _load(self, p: object) -> Any:
        name = machine_name(p)
        if name not in self._loaded:
            self._loaded[name] = load_machine(p)
        return self._loaded[name]

    def rates(self) -> frozenset[str]:
        """The swept keys that are rates of the machine; raises the first reason if no point can be run."""
        first: KernbenchError | None = None
        for point in self._samples():
            try:
                p, roles, changes = self._opened(point)
                self._try(p, roles, changes)
                return frozenset(k for k in self._plan.keys if roles.get(machine_key(k) or "") == "rate")
            except KernbenchError as error:
                first = first or error
        assert first is not None
        raise first

    def _samples(self) -> Iterator[Point]:
        """Combinations of the values; of long ranges, of their ends."""
        axes = [list(islice(axis.sample(MOST_CHECKED), MOST_CHECKED)) for axis in self._plan.axes]
        for chosen in islice(product(*axes), MOST_CHECKED):
            yield dict(zip(self._plan.keys, chosen, strict=True))
        # the last value of one key may be the first that fits
        for number, axis in enumerate(axes):
            for value in axis:
                chosen = tuple(value if i == number else other[-1] for i, other in enumerate(axes))
                yield dict(zip(self._plan.keys, chosen, strict=True))

    def each_once(self) -> None:
        """Refuse values of a key that are the same, however they are written."""
        for setting, axis in zip(self._plan.keys, self._plan.axes, strict=True):
            same = alike(axis, meaning_of(setting, self._bench.parameters, self._keys))
            if same:
                raise BenchError(f"--over {setting}: {same[0]} and {same[1]} are the same value; name each value once")

    def _opened(self, point: Point) -> tuple[Any, dict[str, str], Data]:
        """The parameters of a point, the role of each key of its machine, and its changes of the machine."""
        plain, settings = split_settings(dict(self._plan.fixed) | point)
        p = make(self._bench.parameters, {**self._panel, **plain})
        changes = machine_changes(self._bench.name, p, settings)
        self._keys = {key: entry for key, entry, _ in self._load(p).entries()}
        return p, {key: entry.role for key, entry in self._keys.items()}, changes

    def _try(self, p: Any, roles: dict[str, str], changes: dict[str, object]) -> None:
        """Check that the machine accepts the changes: shapes may contradict each other, rates cannot."""
        shapes = {k: v for k, v in changes.items() if roles.get(k) != "rate"}
        for change in (shapes, *({k: v} for k, v in changes.items() if k not in shapes)):
            if change:
                self._load(p).override(change)

    def hashes(self, plan: Plan) -> dict[str, str]:
        """The hash of each machine that points use, by its name."""
        kind = machine_parameter([field.name for field in fields(self._bench.parameters)])
        defaults = {field.name: field.default for field in fields(self._bench.parameters)}
        given = {**defaults, **self._panel, **dict(plan.fixed)}
        swept = dict(zip(plan.keys, plan.axes, strict=True)).get(kind)
        names = [given[kind]] if kind in given and swept is None else list(swept or ())
        found = {}
        for name in map(str, names):
            try:
                found[name] = self._load(SimpleNamespace(**{kind: name})).hash
            except KernbenchError:
                found[name] = UNREADABLE
        return found
