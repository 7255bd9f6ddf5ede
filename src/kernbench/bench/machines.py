"""The machine that a bench's parameters ask for: a mesh (parameter `machine`), or an npu chip (parameter `chip`).

Settings `machine.KEY` change keys of it; `chip.KEY` is the same for a chip.
"""

from collections.abc import Mapping
from typing import Any

from kernbench import machine
from kernbench.common.errors import BenchError

MACHINE, CHIP = "machine", "chip"
PREFIXES = (f"{MACHINE}.", f"{CHIP}.")
DEFAULT = "reference"


def machine_key(setting: str) -> str | None:
    """The key of the machine that a setting changes; None for one that is a parameter."""
    prefix = next((p for p in PREFIXES if setting.startswith(p)), None)
    return None if prefix is None else setting.removeprefix(prefix)


def split_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters; and settings of the machine, by their full names."""
    changes = {name: value for name, value in settings.items() if machine_key(name) is not None}
    return {name: value for name, value in settings.items() if name not in changes}, changes


def machine_changes(bench: str, p: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of the machine and their values, from settings; refuses those that change what the bench does not have."""
    keys: dict[str, Any] = {}
    for name, value in changes.items():
        if not hasattr(p, CHIP) and (not hasattr(p, MACHINE) or name.startswith(f"{CHIP}.")):
            have = f"; it runs on a machine: {MACHINE}.KEY" if hasattr(p, MACHINE) else ""
            raise BenchError(f"bench {bench} has no {name.partition('.')[0]} to change: {', '.join(changes)}{have}")
        key = str(machine_key(name))
        if key in keys:
            raise BenchError(f"{MACHINE}.{key} and {CHIP}.{key} are the same key: give one of them")
        keys[key] = value
    return keys


def machine_name(p: Any) -> str:
    """The name or path by which the parameters choose a machine."""
    return str(getattr(p, CHIP, getattr(p, MACHINE, DEFAULT)))


def load_machine(p: Any, name: str | None = None) -> Any:
    """The machine of the parameters, or another one of its kind."""
    wanted = machine_name(p) if name is None else name
    if hasattr(p, CHIP):
        # only benches for the npu need its package
        from kernbench.npu.isa.model import load

        return load(wanted)
    return machine.load(wanted)
