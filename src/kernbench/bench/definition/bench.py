"""The class of benches: all that a run needs, as functions of a set of parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernbench.common.dtypes import Array
from kernbench.common.errors import BenchError
from kernbench.result.reading import Fields
from kernbench.result.run import Run

# optional functions of a bench
_OPTIONAL = ("limits", "variants", "intermediates")


@dataclass(frozen=True)
class Expected:
    """What one output should be: a golden `Reference` (or plain array) and how the output is compared with it.

    `rank_axis` and `ranks` give the axis of the reference along which the ranks' parts are arranged, so that an error
    can be attributed to a rank and row. The output is reshaped to the reference's shape first. For `compute_dtype`,
    `allowed` and, for a plain array, `reduction` see `golden.compare`.
    """

    reference: Any
    rank_axis: int | None = None
    ranks: int | None = None
    compute_dtype: str | None = None
    allowed: tuple[float, float] | None = None
    reduction: int | None = None


@dataclass(frozen=True)
class Variant:
    """Another way to solve the same problem: the settings that choose it, and its idea in a sentence."""

    settings: Mapping[str, object]
    idea: str


@dataclass(frozen=True)
class Size:
    """Settings for each panel at one size; with `shapes_only` it is too large to carry data."""

    settings: Mapping[str, Mapping[str, object]]
    shapes_only: bool = False


@dataclass(frozen=True)
class Repeats:
    """How often the whole job repeats the work of a run, such as 80 layers of a model."""

    count: int
    of: str


@dataclass(frozen=True)
class Bench:
    """One bench.

    - `parameters`: a frozen dataclass of `param` fields
    - `inputs(p, rng)`: name -> array, from a seeded generator
    - `golden(p, inputs)`: output name -> `Expected`, Reference or array
    - `host(p, machine)`: the context to launch on; `machine` is p.machine (or the chip p.chip) with any `machine.*`
      (`chip.*`) settings applied
    - `launch(p, inputs, torch=...)`: passes tensors to the context, launches, returns the Run
    - `panels`: named sets of parameter values; a run without a panel runs all of them
    - `limits(p, machine)`: optional; name -> picoseconds that no schedule can beat
    - `variants(p)`: optional; name -> `Variant`, other ways to solve the same problem, to be ranked against each other
    - `sizes`: optional; name -> `Size`, the panels at other sizes than their own
    - `repeats`: optional; how often the whole job repeats this one
    - `intermediates(p, inputs)`: optional; name -> the expected value of the kernel's checkpoints of that name: an
    array, Reference or `Expected`, or a function of the checkpoint's keys that returns one
    """

    name: str
    summary: str
    parameters: type
    inputs: Callable[..., Mapping[str, Array]]
    golden: Callable[..., Fields]
    host: Callable[..., object]
    launch: Callable[..., Run]
    panels: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    limits: Callable[..., Mapping[str, int]] | None = None
    variants: Callable[..., Mapping[str, Variant]] | None = None
    sizes: Mapping[str, Size] = field(default_factory=dict)
    repeats: Repeats | None = None
    intermediates: Callable[..., Mapping[str, object]] | None = None
    file: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise BenchError(f"a bench's name is a Python identifier; got {self.name!r}")
        if not hasattr(self.parameters, "__dataclass_fields__"):
            raise BenchError(f"bench {self.name}: parameters must be a frozen dataclass; got {self.parameters!r}")
        for name in ("inputs", "golden", "host", "launch", "limits", "variants", "intermediates"):
            function = getattr(self, name)
            self._check(name, (function is None and name in _OPTIONAL) or callable(function), "a function")
        self._check("panels", _named(self.panels, Mapping), "name -> values of parameters")
        self._check("sizes", _named(self.sizes, Size), "name -> Size")
        self._check("repeats", self.repeats is None or isinstance(self.repeats, Repeats), "a Repeats")
        for name, size in self.sizes.items():
            strangers = set(size.settings) - set(self.panels)
            if strangers:
                raise BenchError(f"bench {self.name}: size {name} names {sorted(strangers)}, which are no panels")

    def _check(self, name: str, holds: bool, wanted: str) -> None:
        if not holds:
            raise BenchError(f"bench {self.name}: {name} must be {wanted}; got {getattr(self, name)!r}")


def _named(given: object, kind: type) -> bool:
    """Whether it is a mapping from names to objects of this kind."""
    return isinstance(given, Mapping) and all(isinstance(n, str) and isinstance(v, kind) for n, v in given.items())
