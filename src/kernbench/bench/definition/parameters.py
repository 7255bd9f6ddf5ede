"""Parameters of a bench: fields of a frozen dataclass, each with a default, help and limits; made from text or values.

@dataclass(frozen=True)
class Parameters:
    heads: int = param(8, "query heads", low=1)
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, get_args, get_origin, get_type_hints

from kernbench.common.errors import BenchError, KernbenchError, unknown
from kernbench.result.reading import Fields


def param(
    default: object,
    help: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[object] | None = None,
) -> Any:
    """A dataclass field that is a parameter; `low` and `high` are inclusive, and hold for each number of a tuple."""
    return field(default=default, metadata={"help": help, "low": low, "high": high, "choices": choices})


@dataclass(frozen=True)
class Described:
    """One parameter, as shown in tables."""

    name: str
    kind: str
    default: object
    allowed: str
    help: str


def describe(parameters: type) -> list[Described]:
    """All parameters of a bench, in order."""
    hints = _hints(parameters)
    rows = []
    for f in _fields(parameters):
        default = None if f.default is MISSING else f.default
        rows.append(Described(f.name, _kind(hints[f.name]), default, _allowed(f.metadata), f.metadata.get("help", "")))
    return rows


def make(parameters: type, settings: Mapping[str, object]) -> object:
    """An instance with `settings` (text from a command line, or values) over the defaults, checked."""
    hints = _hints(parameters)
    known = {f.name: f for f in _fields(parameters)}
    values = {}
    for name, value in settings.items():
        if name not in known:
            raise BenchError(unknown("parameter", name, known))
        converted = _convert(name, value, hints[name])
        _check(name, converted, known[name].metadata)
        values[name] = converted
    try:
        return parameters(**values)
    except KernbenchError:
        raise
    except Exception as error:
        raise BenchError(f"these parameters do not fit together: {error}") from None


def meaning(parameters: type, name: str, text: str) -> object:
    """What `text` is read as for the parameter `name`, without regard to its limits."""
    return _convert(name, text, _hints(parameters)[name])


_KINDS = (int, float, bool, str)


def _hints(parameters: type) -> dict[str, object]:
    """The type of each parameter: int, float, bool, str, or a tuple of one of them."""
    try:
        hints = get_type_hints(parameters)
    except Exception as error:
        raise BenchError(f"the types of {parameters.__name__} cannot be read: {error}") from None
    for f in _fields(parameters):
        hint = hints[f.name]
        element = get_args(hint)[0] if get_origin(hint) is tuple and get_args(hint) else hint
        if element not in _KINDS:
            raise BenchError(f"parameter {f.name}: its type is int, float, bool, str or a tuple of them, not {hint}")
        if f.default is MISSING and f.default_factory is MISSING:
            raise BenchError(f"parameter {f.name} needs a default: {f.name}: {_kind(hint)} = param(default, help)")
    return hints


def _fields(parameters: type) -> tuple[Any, ...]:
    return fields(parameters)


def _kind(hint: object) -> str:
    if get_origin(hint) is tuple:
        return f"{_kind(get_args(hint)[0])},..."
    return getattr(hint, "__name__", str(hint))


_WANTED = {"int": "a whole number", "float": "a number", "bool": "yes or no", "str": "text"}


def _wanted(hint: object) -> str:
    return _WANTED.get(_kind(hint), _kind(hint))


def _convert(name: str, value: object, hint: object) -> object:
    if get_origin(hint) is tuple:
        items = _unbracketed(value).split(",") if isinstance(value, str) else value
        element = get_args(hint)[0]
        parts = [i for i in items if i != ""] if isinstance(items, (list, tuple)) else [items]
        return tuple(_convert(name, i, element) for i in parts)
    if isinstance(value, str) and hint is not str:
        return _from_text(name, value.strip(), hint)
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise BenchError(f"parameter {name} = {value!r}: {_wanted(hint)} is wanted")
    return value


def _unbracketed(text: str) -> str:
    """The items of "[1, 2]" as "1, 2"; brackets keep the values of a sweep apart."""
    text = text.strip()
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def _from_text(name: str, text: str, hint: Any) -> object:
    try:
        if hint is bool:
            return _WORDS[text.lower()]
        return hint(text)
    except (ValueError, KeyError):
        raise BenchError(f"parameter {name} = {text!r}: {_wanted(hint)} is wanted") from None


def _check(name: str, value: object, metadata: Fields) -> None:
    items = value if isinstance(value, tuple) else (value,)
    low, high, choices = (metadata.get(k) for k in ("low", "high", "choices"))
    for item in items:
        fits = (low is None or item >= low) and (high is None or item <= high) and (choices is None or item in choices)
        if not fits or item != item:
            raise BenchError(f"parameter {name} = {item!r}: allowed is {_allowed(metadata)}")


def _allowed(metadata: Fields) -> str:
    low, high, choices = (metadata.get(k) for k in ("low", "high", "choices"))
    if choices is not None:
        return ", ".join(map(str, choices))
    if low is not None and high is not None:
        return f"{low} to {high}"
    if low is not None:
        return f"{low} or more"
    return f"{high} or less" if high is not None else ""
