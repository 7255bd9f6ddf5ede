"""Tables of keys: a frozen dataclass whose annotations define each key.

A field is either `Annotated[type, Key]` or another `Table`. From these annotations come the checks of a new table,
reading of files and overrides, the list of keys, and the text of a machine file.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar, get_origin, get_type_hints

from kernbench.common.errors import MachineError, unknown
from kernbench.machine.keys import Key, Role, clipped, described, printable

Entry = Key | type["Table"]
Made = TypeVar("Made", bound="Table")
_ABSENT = object()


@dataclass(frozen=True)
class KeyInfo:
    """One key of a machine with its value, as `show` prints it. `value` is in `unit`; `shown` is formatted text."""

    name: str
    unit: str
    value: object
    shown: str
    allowed: str
    help: str
    role: Role


class Table:
    """Base of the tables of a machine: checks and normalises its fields on creation."""

    schema: ClassVar[dict[str, Entry]]
    """The fields in order: name -> its key, or the type of the nested table."""
    whole: ClassVar[str] = "reference"
    """The bundled file with every key, named in messages as one to extend."""
    above_zero: ClassVar[Collection[str]] = ()
    """Full names of keys that must not be 0 though their range begins there."""

    def __init_subclass__(cls) -> None:
        hints = get_type_hints(cls, include_extras=True)
        cls.schema = {name: _entry(hint) for name, hint in hints.items() if get_origin(hint) is not ClassVar}

    def __post_init__(self) -> None:
        reading = _Reading()
        values = reading.table(type(self), vars(self))
        _refuse(reading.problems, type(self).__name__)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def build(cls, tree: Mapping[str, object], source: str, also: Sequence[str] = ()) -> Self:
        """The table in `tree`. All errors are reported together, each line beginning with `source`.

        `also` are problems found before. Missing keys are then not reported, since their source is broken.
        """
        reading = _Reading(complete=not also, problems=list(also), whole=cls.whole, above_zero=cls.above_zero)
        values = reading.table(cls, tree)
        _refuse(reading.problems, source)
        return _made(cls, values)

    def changed(self, tree: Mapping[str, object]) -> "Self | None":
        """This table with the changes in `tree`, without reading the rest again; None if anything is wrong."""
        values = {name: getattr(self, name) for name in self.schema}
        for name, raw in tree.items():
            value = self._value(name, raw)
            if value is None:
                return None
            values[name] = value
        return None if self.conflicts(values) else _made(type(self), values)

    def _value(self, name: str, raw: object) -> object:
        """The value of `raw` for a key or a nested table; None if it is wrong."""
        entry = self.schema.get(name)
        try:
            if isinstance(entry, Key):
                return entry.read(raw)
            return getattr(self, name).changed(raw) if entry is not None and isinstance(raw, Mapping) else None
        except MachineError:
            return None

    @classmethod
    def allowed(cls, name: str, key: Key) -> str:
        """The allowed values of a key with this full name, in words."""
        return _allowed(key, name in cls.above_zero)

    @classmethod
    def conflicts(cls, values: Mapping[str, object]) -> list[str]:
        """Contradictions between valid keys; `values` holds only those that could be read."""
        return []

    def entries(self, prefix: str = "") -> Iterator[tuple[str, Key, object]]:
        """Every key below this table: dotted name, key, stored value."""
        for name, entry in self.schema.items():
            value = getattr(self, name)
            if isinstance(entry, Key):
                yield prefix + name, entry, value
            else:
                yield from value.entries(f"{prefix}{name}.")

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON, numbers in the unit of their key; `build` accepts it."""
        return {
            name: entry.data(getattr(self, name)) if isinstance(entry, Key) else getattr(self, name).to_dict()
            for name, entry in self.schema.items()
        }


def _made(table: type[Made], values: Mapping[str, object]) -> Made:
    """A table of values that were already read: the dataclass constructor would read all of them again."""
    made = object.__new__(table)
    vars(made).update(values)
    return made


def _entry(hint: Any) -> Entry:
    """The key in `Annotated[type, key]`, or the table itself."""
    entry: Entry = hint.__metadata__[0] if hasattr(hint, "__metadata__") else hint
    return entry


def _allowed(key: Key, above_zero: bool) -> str:
    """The allowed values of a key; if it must not be 0, the range without it."""
    return f"more than {key.allowed.replace(' to ', ', at most ', 1)}" if above_zero else key.allowed


def _refuse(problems: list[str], source: str) -> None:
    """Raise one `MachineError` with a line for each problem; do nothing when there is none."""
    if problems:
        raise MachineError("\n".join(f"{source}: {problem}" for problem in problems))


@dataclass
class _Reading:
    """One pass over a tree: collects problems; with `complete`, a missing key is a problem, too."""

    complete: bool = True
    problems: list[str] = field(default_factory=list)
    whole: str = Table.whole
    above_zero: Collection[str] = Table.above_zero

    def table(self, table: type[Table], tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
        """The fields of `table` that can be read from `tree`."""
        known = table.schema
        for name in tree:
            if name not in known:
                what = "table" if isinstance(tree[name], Mapping) else "key"
                self._note(prefix + printable(name), tree[name], unknown(what, name, known))
        read = {name: self._entry(entry, tree.get(name, _ABSENT), prefix + name) for name, entry in known.items()}
        values = {name: value for name, value in read.items() if value is not _ABSENT}
        self.problems += table.conflicts(values)
        return values

    def _entry(self, entry: Entry, raw: object, name: str) -> object:
        """The value, or `_ABSENT` if there is no usable one."""
        if isinstance(entry, Key):
            return self._missing(entry, name) if raw is _ABSENT else self._key(entry, raw, name)
        return self._inner(entry, {} if raw is _ABSENT else raw, name)

    def _key(self, key: Key, raw: object, name: str) -> object:
        try:
            return key.read(raw)
        except MachineError as error:
            allowed = _allowed(key, name in self.above_zero)
            return self._note(name, raw, f"{_sentence(str(error))} Allowed: {allowed}")

    def _missing(self, key: Key, name: str) -> object:
        unit = f", in {key.unit}" if key.unit else ""
        if self.complete:
            self.problems.append(
                f"missing key {name}{unit} ({key.help}); give it, "
                f'or begin the file with extends = "{self.whole}". Allowed: {_allowed(key, name in self.above_zero)}'
            )
        return _ABSENT

    def _inner(self, table: type[Table], raw: object, name: str) -> object:
        if isinstance(raw, table):
            return raw
        if not isinstance(raw, Mapping):
            return self._note(name, raw, f"must be a table with {', '.join(table.schema)}, not {described(raw)}")
        before = len(self.problems)
        values = self.table(table, raw, f"{name}.")
        usable = len(self.problems) == before and len(values) == len(table.schema)
        return _made(table, values) if usable else _ABSENT

    def _note(self, name: str, raw: object, what: str) -> object:
        self.problems.append(f"{name} = {clipped(raw)}: {what}")
        return _ABSENT


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."
