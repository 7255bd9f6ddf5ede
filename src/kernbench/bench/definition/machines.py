"""The machine of a bench's parameters; each target has its own name for the parameter.

Settings `machine.KEY` change keys of it, whatever the target; the target's own name (`chip.KEY`) is equivalent.
"""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from kernbench.common.errors import BenchError
from kernbench.result.reading import Data
from kernbench.targets import registry
from kernbench.targets.registry import MACHINE
from kernbench.targets.target import Target


@cache
def _prefixes() -> tuple[str, ...]:
    return tuple(f"{word}." for word in registry.machine_words())


def machine_key(setting: str) -> str | None:
    """The key of the machine that a setting changes; None for one that is a parameter."""
    prefix = next((p for p in _prefixes() if setting.startswith(p)), None)
    return None if prefix is None else setting.removeprefix(prefix)


def split_settings(settings: Mapping[str, object]) -> tuple[Data, Data]:
    """Parameters; and settings of the machine, by their full names."""
    changes = {name: value for name, value in settings.items() if machine_key(name) is not None}
    return {name: value for name, value in settings.items() if name not in changes}, changes


def machine_changes(bench: str, p: object, changes: Mapping[str, object]) -> dict[str, object]:
    """Keys of the machine and their values, from settings; refuses settings of machines that the bench does not
    have.
    """
    keys: dict[str, object] = {}
    own = machine_parameter(_names(p))
    for name, value in changes.items():
        word = name.partition(".")[0]
        if word != own and (word != MACHINE or not own):
            have = f"; it runs on a {own}: {own}.KEY" if own else ""
            raise BenchError(f"bench {bench} has no {word} to change: {', '.join(changes)}{have}")
        key = str(machine_key(name))
        if key in keys:
            raise BenchError(f"{MACHINE}.{key} and {own}.{key} are the same key: give one of them")
        keys[key] = value
    return keys


def machine_parameter(names: Collection[str]) -> str:
    """The parameter of a bench that names its machine; empty if there is none."""
    word = registry.of_parameters(names).machine
    return word if word in names else ""


def machine_target(names: Collection[str]) -> Target:
    """The target of a bench with these parameters."""
    return registry.find(registry.of_parameters(names).name)


def machine_name(p: object) -> str:
    """The name or path of the machine that the parameters choose."""
    own = machine_parameter(_names(p))
    return str(getattr(p, own)) if own else machine_target(()).machines.default


def target_of(p: object) -> Target:
    """The target of these parameters."""
    return machine_target(_names(p))


def load_machine(p: object, name: str | None = None) -> Any:
    """The machine of the parameters, or another one of its kind."""
    return target_of(p).machines.load(machine_name(p) if name is None else name)


def _names(p: object) -> list[str]:
    """The parameters of an object that name machines."""
    return [word for word in registry.machine_words() if hasattr(p, word)]
