"""Tests of how the emulator runs launches: none of them by the executor."""

import os

import pytest

from kernbench.ptx.emulator.fast_paths import VARIABLE


@pytest.fixture(autouse=True)
def by_the_emulator(monkeypatch):
    """The emulator runs every launch, with its other fast paths unless a test turns them off."""
    if VARIABLE not in os.environ:
        monkeypatch.setenv(VARIABLE, "-executor")
