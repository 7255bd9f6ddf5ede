"""What the variables of a kernel hold, as arrays by name: containers and small objects are opened, numbers are kept."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass

import numpy as np

from kernbench.common.dtypes import Array

# what a target makes of a value: its array and a word on it, a mapping of what is inside, or None for no idea
Show = Callable[[object], "tuple[Array | None, str] | Mapping[str, object] | None"]

MOST_ARRAYS = 512
_DEEPEST = 4


def held_in(frames: Iterable[tuple[str, Mapping[str, object]]], show: Show) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays of all variables, and a word on each; those of outer functions as `function.name`."""
    arrays: dict[str, Array] = {}
    about: dict[str, str] = {}

    def visit(name: str, value: object, depth: int) -> None:
        if len(arrays) >= MOST_ARRAYS or depth > _DEEPEST:
            return
        shown = show(value)
        if isinstance(shown, tuple):
            about[name] = shown[1]
            arrays[name] = np.zeros(0) if shown[0] is None else np.array(shown[0])
        elif isinstance(shown, Mapping):
            for key, inside in shown.items():
                visit(f"{name}.{key}", inside, depth + 1)
        elif isinstance(value, (bool, int, float, np.ndarray, np.generic)):
            number = _number(value)
            if number is not None:
                arrays[name] = number
        else:
            for key, inside in _opened(value):
                visit(f"{name}{key}", inside, depth + 1)

    for function, variables in frames:
        for name, value in variables.items():
            visit(f"{function}.{name}" if function else name, value, 0)
    return arrays, about


def _number(value: object) -> Array | None:
    """A number or array as an array of its own; None for whole numbers that no element type holds."""
    made = np.array(value)
    return None if made.dtype == object else made


def _opened(value: object) -> list[tuple[str, object]]:
    """The parts of a list, (named) tuple, dictionary or dataclass, with how each is reached from it."""
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", inside) for key, inside in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", inside) for name, inside in zip(value._fields, value, strict=True)]
    if isinstance(value, (list, tuple)):
        return [(f"[{number}]", inside) for number, inside in enumerate(value)]
    if is_dataclass(value) and not isinstance(value, type):
        return [(f".{field.name}", getattr(value, field.name, None)) for field in fields(value)]
    return []
