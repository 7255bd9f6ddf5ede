"""The identity of a sweep in a file of results: bench, settings, machines and values; differences of two sweeps."""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from kernbench import __version__
from kernbench.common.errors import BenchError
from kernbench.sweep.planning.plan import Plan
from kernbench.sweep.planning.values import Axis, axis_of

MOST_BRACKETS = 500


@dataclass(frozen=True)
class Record:
    """Stored with the results. Points may be added to a sweep that agrees in all but `over` and new machines.

    - `sweep`: the plan's description of the bench and how it is run
    - `settings`: those that are the same everywhere, of the bench and of the machine
    - `machines`: the hash of each machine, by the name or path it is given as
    - `over`: the values of each swept key; ranges are kept as ranges
    """

    sweep: Mapping[str, str]
    settings: Mapping[str, str]
    machines: Mapping[str, str]
    over: Mapping[str, tuple[str, ...]]

    def differences(self, other: "Record") -> list[str]:
        """The differences to `other`, each in words."""
        shared = self.machines.keys() & other.machines.keys()
        return [
            *_changes(self.sweep, other.sweep),
            *_changes(self.settings, other.settings),
            *_changes(*({f"machine {k}": each.machines[k] for k in sorted(shared)} for each in (self, other))),
        ]

    def joined(self, other: "Record") -> "Record":
        """This sweep with the values and machines that `other` adds."""
        over = {key: self.axis(key).joined(other.axis(key)).written() for key in self.over}
        return Record(self.sweep, self.settings, {**self.machines, **other.machines}, over)

    def axis(self, key: str) -> Axis:
        """The values of a swept key."""
        return axis_of(self.over[key])

    def text(self) -> str:
        """The record as JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"


def record_of(plan: Plan) -> Record:
    """The record of a plan."""
    sweep = {
        "bench": Path(plan.bench).name,
        "source of the bench": _source(Path(plan.bench)),
        "version of kernbench": __version__,
        "panel": plan.panel or "none",
        "seed": str(plan.seed),
        "shapes only": "yes" if plan.shapes_only else "no",
        "swept keys": ", ".join(plan.keys),
    }
    over = {key: axis.written() for key, axis in zip(plan.keys, plan.axes, strict=True)}
    return Record(sweep, dict(plan.fixed), dict(plan.machines), over)


def parse_record(text: str) -> Record:
    """The record in a text; a ValueError describes what is wrong with it."""
    # deeply nested text would exhaust the stack of the parser
    if text.count("[") + text.count("{") > MOST_BRACKETS:
        raise ValueError("it is nested far too deep")
    return _record(json.loads(text))


def read_record(file: Path) -> Record:
    """The record in a file; an error describes what is wrong with it."""
    try:
        return parse_record(file.read_bytes().decode())
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
    except (ValueError, RecursionError) as error:
        why = f"does not say which sweep it belongs to ({error})"
    raise BenchError(f"{file} {why}; choose another --out, or remove it together with the results beside it")


def _record(tree: object) -> Record:
    names = [field.name for field in fields(Record)]
    if not isinstance(tree, dict) or list(tree) != names or not all(isinstance(tree[n], dict) for n in names):
        raise ValueError(f"a table of {', '.join(names)} is wanted")
    texts = [value for name in names[:-1] for value in tree[name].values()]
    for values in tree["over"].values():
        if not isinstance(values, list):
            raise ValueError(f"over: a list of values is wanted, not {values!r}")
        texts += values
    wrong = [text for text in texts if not isinstance(text, str)]
    if wrong:
        raise ValueError(f"text is wanted, not {wrong[0]!r}")
    if ", ".join(tree["over"]) != tree["sweep"].get("swept keys"):
        raise ValueError("over holds other keys than the swept ones")
    return Record(tree["sweep"], tree["settings"], tree["machines"], {k: tuple(v) for k, v in tree["over"].items()})


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return [f"{name} was {before.get(name, 'not set')}, is now {now.get(name, 'not set')}" for name in names]


def _source(file: Path) -> str:
    """Twelve hex digits of a bench's file and the files beside it that it imports, or they import."""
    found: dict[Path, bytes] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in found and path.is_file():
            found[path] = path.read_bytes()
            waiting += [path.with_name(f"{name}.py") for name in _imported(found[path])]
    digest = sha256()
    for path in sorted(found):
        digest.update(path.name.encode() + b"\0" + found[path] + b"\0")
    return digest.hexdigest()[:12]


@lru_cache(maxsize=256)
def _imported(source: bytes) -> frozenset[str]:
    """The last part of every name that is imported: a module, or something in one."""
    names: set[str] = set()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    for node in _statements(tree.body):
        if isinstance(node, ast.ImportFrom):
            names |= {(node.module or "").rpartition(".")[2], *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name.rpartition(".")[2] for alias in node.names}
    return frozenset(names - {"", "*"})


def _statements(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements, nested ones after their parents; expressions, which import nothing, are skipped."""
    for node in nodes:
        yield node
        for inside in ("body", "orelse", "handlers", "finalbody", "cases"):
            yield from _statements(getattr(node, inside, ()))
