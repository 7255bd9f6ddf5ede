"""The library as a file: built once, by which compiler, where, and what is said where that cannot be."""

import re
from importlib.resources import files

import pytest

from kernbench.ptx.doors.driver.library import NAME, LibraryError, library_folder
from kernbench.ptx.doors.driver.requests import Request, Result


@pytest.fixture
def anew(monkeypatch):
    """Forget which library was found."""
    library_folder.cache_clear()
    yield monkeypatch
    library_folder.cache_clear()


def native(name: str) -> str:
    return files("kernbench.ptx.doors.driver").joinpath("native", name).read_text()


def test_python_and_c_agree_on_requests_and_results():
    header = native("driver.h")
    requests = {name: int(number) for name, number in re.findall(r"REQUEST_(\w+) = (\d+)", header)}
    assert requests == {request.name: request.value for request in Request}
    codes = {name: int(number) for name, number in re.findall(r"^  ([A-Z_]+) = (\d+),$", header, re.MULTILINE)}
    shared = codes.keys() & {result.name for result in Result}
    assert len(shared) >= 8
    assert {name: codes[name] for name in shared} == {name: Result[name].value for name in shared}


def test_functions_of_the_runtime_are_listed_in_order():
    listed = re.findall(r"(RUNTIME|ABSENT)\((\w+)\)", native("runtime.def"))
    assert [name for _, name in listed] == sorted(name for _, name in listed)
    names = [name for kind, name in listed if kind == "RUNTIME"]
    defined = set()
    for file in ("runtime.c", "runtime_graphs.c", "runtime_others.c"):
        defined |= set(re.findall(r"^EXPORT .*?\**\b((?:__)?cuda\w+)\(", native(file), re.MULTILINE))
    assert defined == set(names)


def test_every_function_of_the_driver_can_be_found_by_name():
    table = native("functions.def")
    listed = set(re.findall(r"FORM\(\w+, (\w+)\)", table)) | set(re.findall(r"LATER\(\w+, \d+, (\w+)\)", table))
    defined = set()
    files_of_it = ["link", "device", "memory", "modules", "launch", "streams", "batches", "graphs", "names"]
    for file in (f"{name}.c" for name in files_of_it):
        defined |= set(re.findall(r"^EXPORT int (cu\w+)\([^;]*{", native(file), re.MULTILINE))
    assert defined - listed == set()


@pytest.fixture
def quick_compiler(anew, tmp_path):
    """A compiler that makes empty files."""
    quick = tmp_path / "quick"
    quick.write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && : > "$2"; shift; done\n')
    quick.chmod(0o755)
    anew.setenv("CC", str(quick))
    return anew


def test_it_is_built_once(quick_compiler, tmp_path):
    quick_compiler.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = library_folder()
    made = (first / NAME).stat().st_mtime_ns
    assert first.is_relative_to(tmp_path)
    library_folder.cache_clear()
    assert library_folder() == first
    assert (first / NAME).stat().st_mtime_ns == made
    assert sorted(path.name for path in first.iterdir()) == ["libcuda.so", NAME, "libcudart.so.12", "libcudart.so.13"]


def test_without_a_compiler_it_says_what_to_install(anew):
    anew.delenv("CC", raising=False)
    anew.setenv("PATH", "/nowhere")
    with pytest.raises(LibraryError, match="install gcc or clang, or name one in CC"):
        library_folder()


def test_a_compiler_that_fails_is_shown_with_what_it_said(anew, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho no room on this disk >&2\nexit 1\n")
    broken.chmod(0o755)
    anew.setenv("CC", str(broken))
    anew.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(
        LibraryError, match=r"cannot be built(.|\n)*no room on this disk(.|\n)*Name another compiler in CC"
    ):
        library_folder()


def test_a_cache_that_cannot_be_written_is_not_needed(quick_compiler, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    quick_compiler.setenv("XDG_CACHE_HOME", str(blocked))
    quick_compiler.setattr("tempfile.tempdir", str(tmp_path))
    assert library_folder().is_relative_to(tmp_path)
