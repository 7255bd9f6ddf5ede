"""Operators of torch as their undefined elements are followed: their names, and which arguments they change."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import torch

# they change a tensor's shape or storage, not its content
_SHAPES = {"resize_", "set_", "resize_as_", "detach_", "requires_grad_", "_resize_output_"}


class Operator(Protocol):
    """An overload of an operator."""

    overloadpacket: object

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run it."""


class Alias(Protocol):
    """Alias information of an argument or result: whether it is written."""

    is_write: bool


class Argument(Protocol):
    """An argument or a result in the schema of an operator."""

    name: str
    alias_info: Alias | None


class Schema(Protocol):
    """The schema of an operator."""

    arguments: Sequence[Argument]
    returns: Sequence[Argument]


# whether operators compute
_KNOWN: dict[object, bool] = {}


def name_of(func: Operator) -> str:
    """The name of an operator, without its overload."""
    return str(getattr(getattr(func, "overloadpacket", None), "__name__", ""))


def tags_of(func: Operator) -> Sequence[object]:
    """What torch says of an operator."""
    return getattr(func, "tags", ())


def computes(func: Operator) -> bool:
    """Whether an operator reads or writes elements: views and changes of shape do not."""
    if func not in _KNOWN:
        _KNOWN[func] = _computes(func)
    return _KNOWN[func]


def _schema_of(func: Operator) -> Schema | None:
    """The schema of an operator; those of higher order have none."""
    return getattr(func, "_schema", None)


def _computes(func: Operator) -> bool:
    schema = _schema_of(func)
    if schema is None or name_of(func) in _SHAPES:
        return False
    if any(map(_is_written, schema.arguments)):
        return True
    return not schema.returns or not all(one.alias_info is not None for one in schema.returns)


def changed(func: Operator, args: Sequence[object], kwargs: Mapping[str, object]) -> Iterator[object]:
    """The arguments that an operator changes."""
    schema = _schema_of(func)
    for position, argument in enumerate(schema.arguments if schema is not None else ()):
        if _is_written(argument):
            if position < len(args):
                yield args[position]
            elif argument.name in kwargs:
                yield kwargs[argument.name]


def tensors(values: object) -> Iterator[torch.Tensor]:
    """The tensors among arguments or results, also in lists."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors(value)


def _is_written(argument: Argument) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)
