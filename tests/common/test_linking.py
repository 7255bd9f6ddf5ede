"""Parts of loops are read into them, and are made into machine code nowhere else."""

import os
import subprocess
import sys

import numpy as np
import pytest
from numba.core import codegen

from kernbench.common import compiled


@compiled.part
def doubled(value):
    """A part that another one calls."""
    return value * 2


@compiled.part
def refused(value):
    """A part that may fail, and says with what."""
    if value > 100:
        raise ValueError("too large", 100)
    return doubled(doubled(value)) + 1


@pytest.fixture
def translated(monkeypatch):
    """The names of modules that become machine code."""
    seen = []
    add = codegen.JITCPUCodegen._add_module

    def note(self, module):
        seen.append(module.name)
        return add(self, module)

    monkeypatch.setattr(codegen.JITCPUCodegen, "_add_module", note)
    return seen


def work(row):
    """What the loops of these tests do."""
    for at in range(row.size):
        row[at] = refused(row[at])


def test_a_loop_with_parts_is_one_module(translated):
    loop = compiled.njit(_nrt=False, pipeline_class=compiled.LoopCompiler)(work)
    row = np.arange(4)
    loop(row)
    assert row.tolist() == [1, 5, 9, 13]
    # the types of rows differ: once more, and no more than once
    other = np.arange(4, dtype=np.float32)
    loop(other)
    assert other.tolist() == [1, 5, 9, 13]
    assert [name.rpartition(".")[2] for name in translated] == ["work", "work"]


def test_an_error_of_a_part_is_raised():
    loop = compiled.njit(_nrt=False, pipeline_class=compiled.LoopCompiler)(work)
    with pytest.raises(ValueError, match="too large") as raised:
        loop(np.array([1, 101]))
    assert raised.value.args == ("too large", 100)


def test_other_functions_may_call_parts_of_parts(translated):
    @compiled.njit()
    def gathered(values):
        return [refused(value) for value in values]

    assert gathered(np.arange(3)) == [1, 5, 9]
    assert not any("refused" in name or "doubled" in name for name in translated)


LOOPS = """
from pathlib import Path
import numpy as np
from kernbench.common import compiled
compiled._PACKAGE, compiled.ROOMS = Path(__file__).parent, ('.',)

@compiled.part
def doubled(value):
    return value * 2

@compiled.part
def refused(value):
    if value > 100:
        raise ValueError("too large", 100)
    return doubled(value) + 1

@compiled.loop
def all_of(row):
    for at in range(row.size):
        row[at] = refused(row[at])

@compiled.loop
def twice(row):
    all_of(row)
    all_of(row)
    row[0] = refused(row[0])

row = np.ones(2)
all_of(row)
if __name__ == "__main__":
    import sys
    if "twice" in sys.argv:
        twice(row)
    print(row.tolist(), sum(all_of.stats.cache_hits.values()))
    try:
        all_of(np.full(2, 200.0))
    except ValueError as error:
        print(error.args)
"""


def test_a_kept_loop_has_its_parts(tmp_path):
    (tmp_path / "loops.py").write_text(LOOPS)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)

    def told(*words):
        command = [sys.executable, str(tmp_path / "loops.py"), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return done.stdout.split("\n")[:2]

    assert told() == ["[3.0, 3.0] 0", "('too large', 100)"]
    assert told() == ["[3.0, 3.0] 1", "('too large', 100)"]
    assert told("twice") == ["[31.0, 15.0] 1", "('too large', 100)"]
    assert told("twice") == ["[31.0, 15.0] 1", "('too large', 100)"]
