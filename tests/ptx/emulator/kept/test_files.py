"""Kept programs are read only where nobody else can have written them, whole and by this version."""

import os
from pathlib import Path

import pytest

from kernbench.common import compiled
from kernbench.ptx.emulator.kept import files


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "folder", lambda: str(tmp_path))
    return tmp_path / "programs"


def test_what_was_written_is_read(folder):
    assert files.read("one") is None
    files.write("one", b"data")
    files.write("none", b"")
    assert files.read("one") == b"data"
    assert files.read("none") == b""
    files.write("one", b"other")
    assert files.read("one") == b"other"
    assert {path.name for path in folder.iterdir()} == {"one", "none"}


def test_names_hold_all_that_matters(monkeypatch):
    names = {files.name_of("text", "k"), files.name_of("text", "m"), files.name_of("other", "k")}
    monkeypatch.setattr(files, "_version", lambda: ("another",))
    assert len(names | {files.name_of("text", "k")}) == 4


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:40] + b"x" + data[41:]]
)
def test_what_is_damaged_is_not_used(folder, damage):
    files.write("one", b"some data of a program")
    (folder / "one").write_bytes(damage((folder / "one").read_bytes()))
    assert files.read("one") is None


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_can_write_is_not_read(folder, mode):
    files.write("one", b"data")
    (folder / "one").chmod(mode)
    assert files.read("one") is None


def test_a_folder_that_others_can_write_is_not_used(folder):
    files.write("one", b"data")
    folder.chmod(0o777)
    assert files.read("one") is None
    files.write("two", b"data")
    folder.chmod(0o700)
    assert files.read("one") == b"data"
    assert files.read("two") is None


def test_what_belongs_to_another_user_is_not_read(folder, monkeypatch):
    files.write("one", b"data")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert files.read("one") is None


def test_a_link_in_place_of_the_folder_is_not_followed(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    files.write("one", b"data")
    assert files.read("one") is None
    assert not list((tmp_path / "elsewhere").iterdir())


def test_without_a_folder_nothing_is_kept(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("", str(tmp_path / "file"), str(tmp_path / "missing" / "deep")):
        monkeypatch.setattr(compiled, "folder", lambda place=place: place)
        files.write("one", b"data")
        assert files.read("one") is None


def test_a_write_that_fails_leaves_nothing(folder, monkeypatch):
    def full(*given):
        raise OSError("no space left on device")

    files.write("one", b"data")
    monkeypatch.setattr(os, "replace", full)
    files.write("one", b"other")
    assert files.read("one") == b"data"
    assert [path.name for path in folder.iterdir()] == ["one"]


def test_those_that_were_not_used_for_longest_go_first(folder, monkeypatch):
    monkeypatch.setattr(files, "_MOST", 200)
    for number, name in enumerate("abc"):
        files.write(name, bytes(30))
        os.utime(folder / name, (number, number))
    files.read("a")
    files.write("d", bytes(30))
    assert {path.name for path in Path(folder).iterdir()} == {"a", "b", "c", "d"}
    files.write("0", bytes(30))
    assert {path.name for path in Path(folder).iterdir()} == {"a", "d", "0"}
