"""Machines as objects: exact numbers, keys, hash, override, and what they refuse."""

import json
import pickle
import re
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.dtypes import DTYPES
from kernbench.common.errors import MachineError
from kernbench.machine import Ipcq, Link, Machine, Pe, load

REFERENCE = load("reference")
KEYS = [name for name, _, _ in REFERENCE.entries()]
HASHES = ["4cebf47c138f", "688e4e97b5dd", "12d9b514df81"]
SHAPE_KEYS = ["kind", "package.cubes", "cube.pes", "pe.scratch", "ipcq.depth", "ipcq.slot"]


def test_tables_check_themselves() -> None:
    with pytest.raises(MachineError) as caught:
        Pe(clock=0, dispatch_cycles=True, scratch=4096)
    assert str(caught.value).splitlines() == [
        "Pe: clock = 0: out of range. Allowed: 0.001 to 100 GHz",
        "Pe: dispatch_cycles = true: must be a number, not true or false. Allowed: 0 to 1000000 cycles",
    ]


def test_tables_take_units_and_are_normalised() -> None:
    assert Link(bandwidth="64 GB/s", latency=np.int64(20)) == Link(bandwidth=64.0, latency=20)  # type: ignore[arg-type]
    assert Ipcq(depth=np.int64(4), slot="64 KiB") == Ipcq(depth=4, slot=65536)  # type: ignore[arg-type]


def test_frozen_hashable_and_picklable() -> None:
    with pytest.raises(FrozenInstanceError):
        REFERENCE.pe.clock = 2  # type: ignore[misc]
    assert {REFERENCE: 1}[pickle.loads(pickle.dumps(REFERENCE))] == 1


def test_whole_numbers_of_small_units() -> None:
    link = Link(bandwidth="64 GiB/s", latency="1.2345 ns")  # type: ignore[arg-type]
    assert link.bytes_per_second == 64 * 2**30
    assert link.latency_ps == 1234
    assert isinstance(link.bytes_per_second, int)
    assert isinstance(link.latency_ps, int)


def test_durations_round_up_once() -> None:
    pe = replace(REFERENCE.pe, clock=3)
    assert pe.cycle_ps == Fraction(1000, 3)
    assert [pe.cycles_ps(n) for n in (0, 1, 2, 3, 300)] == [0, 334, 667, 1000, 100_000]
    link = replace(REFERENCE.link, bandwidth=300)
    assert link.ps_per_byte == Fraction(10, 3)
    assert [link.transfer_ps(n) for n in (0, 1, 3, 300)] == [0, 4, 10, 1000]


@given(st.integers(10**6, 10**15))
def test_no_bandwidth_loses_precision(bytes_per_second: int) -> None:
    machine = REFERENCE.override({"link.bandwidth": f"{bytes_per_second} B/s"})
    assert machine.link.bytes_per_second == bytes_per_second
    assert machine.override({}).link == machine.link
    assert machine.override({"link.bandwidth": machine.link.bandwidth}).link.bytes_per_second == bytes_per_second


@given(st.integers(0, 10**12))
def test_no_latency_loses_precision(ps: int) -> None:
    assert REFERENCE.override({"hbm.latency": f"{ps} ps"}).hbm.latency_ps == ps


def test_engine_rates() -> None:
    assert REFERENCE.gemm.macs_per_cycle("f16") == 4096
    assert REFERENCE.gemm.macs_per_cycle("f32") == 1024
    assert REFERENCE.math.results_per_cycle("exp") == 16
    assert REFERENCE.math.results_per_cycle("add") == 128
    assert set(REFERENCE.gemm.macs_per_cell_cycle.schema) <= set(DTYPES)
    with pytest.raises(MachineError, match=r"unknown GEMM operand type 'i32'; known: f16, .*f32\..* Convert"):
        REFERENCE.gemm.macs_per_cycle("i32")


def test_keys_tell_all() -> None:
    listed = REFERENCE.keys()
    infos = {info.name: info for info in listed}
    depth = infos["ipcq.depth"]
    assert (depth.unit, depth.value, depth.shown, depth.allowed) == ("slots", 4, "4 slots", "1 to 65536 slots")
    assert depth.role == "shape"
    assert infos["pe.scratch"].shown == "4 MiB"
    assert infos["package.cubes"].shown == "4x4"
    assert infos["gemm.macs_per_cell_cycle.f32"].value == 0.25
    assert all(info.help and info.allowed for info in infos.values())
    assert [name for name, info in infos.items() if info.role == "shape"] == SHAPE_KEYS
    assert [name for name, info in infos.items() if info.role == "label"] == ["name"]
    assert len(infos) == 30


def test_to_dict_is_json_and_builds_again() -> None:
    data = json.loads(json.dumps(REFERENCE.to_dict()))
    assert data["package"] == {"cubes": [4, 4]}
    assert data["hbm"] == {"bandwidth": 512, "latency": 300}
    assert Machine.build(data, "data") == REFERENCE


def test_hash_is_of_the_content_only() -> None:
    assert re.fullmatch("[0-9a-f]{12}", REFERENCE.hash)
    assert REFERENCE.override({"name": "mine"}).hash == REFERENCE.hash
    assert REFERENCE.override({"pe.clock": "1000 MHz"}).hash == REFERENCE.hash
    assert REFERENCE.override({"pe.clock": 1.1}).hash != REFERENCE.hash


def test_hash_is_stable_across_releases() -> None:
    assert [load(name).hash for name in ("reference", "small", "large")] == HASHES


@pytest.mark.parametrize(("key", "value"), [("hbm.bandwidth", 100), ("gemm.rows", 128), ("dma.channels", 4)])
def test_rate_keys_leave_the_shape(key: str, value: object) -> None:
    assert REFERENCE.override({key: value}).shape_key() == REFERENCE.shape_key()


@pytest.mark.parametrize(("key", "value"), [("package.cubes", "2x2"), ("pe.scratch", "1 MiB"), ("ipcq.depth", 1)])
def test_shape_keys_change_the_shape(key: str, value: object) -> None:
    assert hash(REFERENCE.override({key: value}).shape_key()) != hash(REFERENCE.shape_key())


def test_override_changes_only_what_it_says() -> None:
    machine = REFERENCE.override({"ipcq.depth": 1, "link.bandwidth": "64 GB/s", "cube.pes": [1, 4]})
    assert (machine.ipcq.depth, machine.link.bandwidth, machine.pes_per_cube) == (1, 64, 4)
    assert machine.link.latency == REFERENCE.link.latency
    back = machine.override({"ipcq.depth": "4", "link.bandwidth": 128, "cube.pes": "2x4"})
    assert back == REFERENCE


@pytest.mark.parametrize("text", ["[2,2]", "[2, 2]", " [ 2 , 2 ] ", "2x2"])
def test_a_grid_as_text_is_what_the_message_says_is_allowed(text: str) -> None:
    assert REFERENCE.override({"cube.pes": text}).cube.pes == (2, 2)
    for bad in ("[2]", "[2,2", "2,2]", "[2,,2]", "[2x2]", "[]", "[-1,2]"):
        with pytest.raises(MachineError, match=r"not a grid. Allowed: \[rows, columns\]"):
            REFERENCE.override({"cube.pes": bad})


@given(st.dictionaries(st.sampled_from(KEYS), st.integers(0, 5000), max_size=3))
def test_an_override_is_the_machine_made_anew(changes: dict[str, Any]) -> None:
    """What is read alone is what reading the whole machine gives, and what is wrong is wrong in both."""
    found = []
    for override in (REFERENCE.override, REFERENCE._rebuilt):
        try:
            found.append(override(changes))
        except MachineError as error:
            found.append(str(error))
    assert found[0] == found[1]
    assert hash(found[0]) == hash(found[1])


def test_override_leaves_the_original() -> None:
    REFERENCE.override({"gemm.macs_per_cell_cycle.f16": 8})
    assert REFERENCE.gemm.macs_per_cell_cycle.f16 == 1


def test_override_lists_all_problems() -> None:
    with pytest.raises(MachineError) as caught:
        REFERENCE.override({"ipcq.dept": 1, "link": {}, "ipcq.slot": "0.3 KiB", "link.bandwidth": "64 Gb/s"})
    lines = str(caught.value).splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("override: unknown machine key 'ipcq.dept'; known: name, kind, package.cubes,")
    assert lines[0].endswith("Did you mean 'ipcq.depth'?")
    assert lines[1].startswith("override: unknown machine key 'link'")
    assert lines[2] == "override: ipcq.slot = '0.3 KiB': must be a whole number. Allowed: 1 B to 1 GiB"
    assert lines[3].startswith("override: link.bandwidth = '64 Gb/s': unknown unit 'Gb/s'; known: B/s,")
    assert lines[3].endswith("Did you mean 'GB/s'? Allowed: 0.001 to 1000000 GB/s")


def test_a_table_is_no_key() -> None:
    for changes in ({"link": {}}, {"link": {"latency": 1}}, {"": 1}, {"ipcq.depth.x": 1}):
        with pytest.raises(MachineError, match="unknown machine key"):
            REFERENCE.override(changes)


anything: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=4),
    st.fractions(),
    st.lists(st.one_of(st.integers(-2, 5), st.floats(), st.text(max_size=3)), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


@given(st.dictionaries(st.sampled_from(KEYS), anything, max_size=3))
def test_override_gives_a_machine_or_a_machine_error(changes: dict[str, Any]) -> None:
    try:
        machine = REFERENCE.override(changes)
    except MachineError:
        return
    assert Machine.build(machine.to_dict(), "again") == machine
