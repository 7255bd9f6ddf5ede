"""The values of a kernel's variables, as arrays by name.

Containers and small objects are expanded, numbers are kept.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass

import numpy as np

from kernbench.common.dtypes import Array

# how a target shows a value: an array and a description, a mapping of its parts, or None if it does not know the type
Show = Callable[[object], "tuple[Array | None, str] | Mapping[str, object] | None"]

MOST_ARRAYS = 512
_DEEPEST = 4


def held_in(frames: Iterable[tuple[str, Mapping[str, object]]], show: Show) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays of all variables, with descriptions; variables of outer functions are named `function.name`."""
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
    """A number or array as a new array; None for integers that no element type holds."""
    made = np.array(value)
    return None if made.dtype == object else made


def _opened(value: object) -> list[tuple[str, object]]:
    """The parts of a list, (named) tuple, dictionary or dataclass, with the expression that reaches each."""
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", inside) for key, inside in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", inside) for name, inside in zip(value._fields, value, strict=True)]
    if isinstance(value, (list, tuple)):
        return [(f"[{number}]", inside) for number, inside in enumerate(value)]
    if is_dataclass(value) and not isinstance(value, type):
        return [(f".{field.name}", getattr(value, field.name, None)) for field in fields(value)]
    return []
