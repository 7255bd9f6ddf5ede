"""Folders of kernels as benches: the target whose machine is meant makes the bench."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernbench.bench import folder_bench, platform_chip
from kernbench.common.errors import BenchError
from kernbench.targets import registry


def takes_folders(name, platforms):
    """A module that makes benches of folders, which are only named here."""

    def platform_machine(platform):
        if platform not in platforms:
            raise BenchError(f"{name} has no platform {platform}")
        return platforms[platform]

    def bench(kernels, golden, machine):
        return name, kernels, golden, machine

    return SimpleNamespace(DEFAULT_MACHINE=f"{name}_1", folder_bench=bench, platform_machine=platform_machine)


@pytest.fixture
def two_targets(monkeypatch):
    rows = []
    for name, platforms in (("one", {"sim": "one_1"}), ("two", {"twosim": "two_2"})):
        module = takes_folders(name, platforms)
        machines = SimpleNamespace(owns=lambda machine, name=name: machine.startswith(name))
        module.TARGET = SimpleNamespace(machines=machines)
        monkeypatch.setitem(sys.modules, f"folders_of_{name}", module)
        rows.append(registry.Listed(name, f"folders_of_{name}", machine=name, folders=f"folders_of_{name}"))
    monkeypatch.setattr(registry, "listed", lambda: tuple(rows))


@pytest.mark.usefixtures("two_targets")
def test_the_target_that_has_the_machine_makes_the_bench():
    folder, golden = Path("kernels"), Path("golden.py")
    assert folder_bench(folder, golden) == ("one", folder, golden, "one_1")
    assert folder_bench(folder, golden, "two_2") == ("two", folder, golden, "two_2")
    assert folder_bench(folder, golden, "somebody's.toml")[0] == "one"


@pytest.mark.usefixtures("two_targets")
def test_the_first_target_that_knows_a_platform_answers():
    assert [platform_chip(name) for name in ("sim", "twosim")] == ["one_1", "two_2"]
    with pytest.raises(BenchError, match="one has no platform other"):
        platform_chip("other")
