"""Rows on disk: read back as they were written, used where they are whole and can be run, else made anew."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.test_wgmma import IN_REGISTERS, SIGNED, SUMS, kernel
from tests.ptx.executor.test_running import BARRIER, FROM_NEXT, HEAD, LOAD, STORE, TO_SHARED

from kernbench import ptx
from kernbench.common import compiled
from kernbench.common.native_loops import SUFFIX
from kernbench.ptx.emulator.analysis.building import program_of, take_decoded
from kernbench.ptx.emulator.kept import files
from kernbench.ptx.executor import compiling, kept_rows, running
from kernbench.ptx.executor.rows import Rows, rows_of

# only what is made of longer texts is kept
LONG = "// a comment\n" * 200
GOOD = HEAD + LOAD + TO_SHARED + BARRIER + FROM_NEXT + STORE + "  ret;\n}\n" + LONG
UNSET = HEAD + "  add.u32 %r10, %r20, 1;\n" + STORE + "  ret;\n}\n" + LONG


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "folder", lambda: str(tmp_path))
    return tmp_path / "programs"


@pytest.fixture
def made(monkeypatch):
    """The names of programs whose rows were made."""
    found, make = [], running._made

    def noted(program):
        found.append(program.kernel.name)
        return make(program)

    monkeypatch.setattr(running, "_made", noted)
    return found


@pytest.fixture
def kept(folder, made):
    """Rows that were made for a launch, which has compiled their operations, and kept."""
    program(GOOD)
    launched(GOOD)
    assert made == ["kernel"]
    made.clear()
    return folder / files.name_of(GOOD, "rows", "kernel", False)


def program(text):
    """A program as in a process of its own: nothing is known of its rows."""
    found = program_of(ptx.parse(text).kernels["kernel"])
    running._ROWS.pop(found, None)
    return found


def launched(text):
    device = ptx.EmulatedDevice("sm_80")
    out = device.array(np.zeros(192, np.uint32), "out")
    given = device.array(np.arange(192, dtype=np.uint32), "given")
    run = device.launch(ptx.parse(text).kernels["kernel"], 3, 64, [given, out, 150])
    assert run.findings == []
    return out.numpy()


def same(one, two):
    """Whether two programs have the same rows; one from the disk knows operations by their names."""
    for column in ("code", "operations"):
        np.testing.assert_array_equal(getattr(one, column), getattr(two, column))
    np.testing.assert_array_equal(one.names.counts, two.names.counts)
    assert [each.name for each in one.known] == [each.name for each in two.known]
    for name in ("values", "nbytes", "entry"):
        assert getattr(one, name) == getattr(two, name)
    assert (one.names.registers, one.names.blocks) == (two.names.registers, two.names.blocks)


def test_rows_are_read_as_they_were_written():
    rows = running._made(program(GOOD))
    same(rows, kept_rows.from_bytes(kept_rows.to_bytes(rows)))


def test_rows_of_a_program_that_was_decoded_again_are_the_same():
    """Also where ptxas adds waits, which have sites of their own."""
    kinds = ("f32", "f16", "f16")
    text = kernel(64, kinds, 16, tail="1, 1, 0, 0", multiply=SUMS, last="").module.source
    text = text.replace("  .reg .b32 %d<32>;", IN_REGISTERS).replace(*SIGNED)
    made = program_of(ptx.parse(text).kernels["kernel"])
    assert any("wait_group" in site.name for site in made.sites)
    same(*(rows_of(take_decoded(made), frozenset()) for _ in range(2)))


def test_rows_of_a_program_are_made_once(kept, made):
    found = running.rows_for(program(GOOD))
    assert all(isinstance(each, compiling.Named) for each in found.known)
    np.testing.assert_array_equal(launched(GOOD).reshape(3, 64), np.roll(np.arange(192).reshape(3, 64), -1, axis=1))
    assert made == []


def test_a_reason_is_kept(folder, made):
    reasons = [running.rows_for(program(UNSET)) for _ in range(2)]
    assert reasons == ["registers that may be read before they are set"] * 2
    assert made == ["kernel"]


def test_rows_of_short_texts_are_not_kept(folder, made):
    for _ in range(2):
        assert isinstance(running.rows_for(program(GOOD.removesuffix(LONG))), Rows)
    assert made == ["kernel"] * 2
    assert not folder.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    ],
    ids=["cut", "empty", "changed"],
)
def test_damaged_files_are_as_if_they_were_not_there(kept, made, damage):
    kept.write_bytes(damage(kept.read_bytes()))
    assert isinstance(running.rows_for(program(GOOD)), Rows)
    assert made == ["kernel"]


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"rows": 1}\n', b"\x80", b'{"rows": -1}\n'])
def test_files_that_hold_no_rows_are_as_if_they_were_not_there(kept, made, data):
    files.write(kept.name, data)
    assert isinstance(running.rows_for(program(GOOD)), Rows)
    assert made == ["kernel"]


def test_rows_without_their_machine_code_are_made_anew(kept, made, monkeypatch):
    """As where the code was removed, or is of another kind of machine."""
    monkeypatch.setattr(compiling, "_ADDRESSES", {})
    for code in kept.parent.parent.glob(f"**/*{SUFFIX}"):
        code.unlink()
    found = running.rows_for(program(GOOD))
    assert made == ["kernel"]
    assert not any(isinstance(each, compiling.Named) for each in found.known)


def test_rows_of_other_sources_are_not_used(kept, made, monkeypatch):
    monkeypatch.setattr(files, "_version", lambda: ("another",))
    running.rows_for(program(GOOD))
    assert made == ["kernel"]
