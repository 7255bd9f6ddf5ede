"""Loading: the bundled numbers, every kind of bad file with its words, `extends`, and no error but MachineError."""

import os
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench.common.errors import MachineError
from kernbench.machine import MOST_PES, Machine, bundled, load

REFERENCE = load("reference")
TEXT = REFERENCE.to_toml()
KEYS = [name for name, _, _ in REFERENCE.entries()]
NUMBERS: dict[str, Any] = {
    "pe": {"clock": 1, "dispatch_cycles": 8, "scratch": 4 * 1024 * 1024},
    "gemm": {
        "rows": 64,
        "columns": 64,
        "macs_per_cell_cycle": {"f16": 1, "bf16": 1, "f8e4m3": 2, "f8e5m2": 2, "i8": 2, "f32": 0.25},
    },
    "math": {"lanes": 128, "simple_per_lane": 1, "per_cycle": {"exp": 16, "log": 16, "sqrt": 16, "div": 16}},
    "dma": {"channels": 2},
    "hbm": {"bandwidth": 512, "latency": 300},
    "ipcq": {"depth": 4, "slot": 64 * 1024},
    "link": {"bandwidth": 128, "latency": 20},
    "cube_link": {"bandwidth": 256, "latency": 100},
}
GRIDS = {"reference": ([4, 4], [2, 4]), "small": ([1, 1], [2, 2]), "large": ([8, 8], [8, 8])}


def problems(path: object) -> list[str]:
    """The lines of the error that loading `path` gives."""
    with pytest.raises(MachineError) as caught:
        load(path)  # type: ignore[arg-type]
    return str(caught.value).splitlines()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("m.toml")


def edited(file: Path, old: str, new: str) -> Path:
    """The reference machine's file with one piece replaced."""
    assert TEXT.count(old) == 1
    file.write_text(TEXT.replace(old, new), encoding="utf-8")
    return file


def extending(file: Path, text: str) -> Path:
    file.write_text(f'extends = "reference"\n{text}', encoding="utf-8")
    return file


@pytest.mark.parametrize("name", GRIDS)
def test_bundled_numbers(name: str) -> None:
    cubes, pes = GRIDS[name]
    grids = {"name": name, "kind": "mesh", "package": {"cubes": cubes}, "cube": {"pes": pes}}
    assert load(name).to_dict() == grids | NUMBERS


def test_bundled_in_base_units() -> None:
    assert bundled() == ["large", "reference", "small"]
    assert (REFERENCE.cubes_per_package, REFERENCE.pes_per_cube) == (16, 8)
    assert (load("small").cubes_per_package, load("small").pes_per_cube) == (1, 4)
    assert (load("large").cubes_per_package, load("large").pes_per_cube) == (64, 64)
    assert (REFERENCE.clock_hz, REFERENCE.pe.cycle_ps) == (10**9, Fraction(1000))
    assert (REFERENCE.hbm.bytes_per_second, REFERENCE.hbm.latency_ps) == (512 * 10**9, 300_000)
    assert (REFERENCE.link.bytes_per_second, REFERENCE.link.latency_ps) == (128 * 10**9, 20_000)
    assert (REFERENCE.cube_link.bytes_per_second, REFERENCE.cube_link.latency_ps) == (256 * 10**9, 100_000)


@pytest.mark.parametrize("name", GRIDS)
def test_round_trip(name: str, file: Path) -> None:
    file.write_text(load(name).to_toml(), encoding="utf-8")
    assert load(file) == load(name)
    assert load("m.toml") == load(name)


def test_round_trip_of_odd_values(file: Path) -> None:
    machine = REFERENCE.override(
        {"name": 'q"\\uote \u00e9', "hbm.bandwidth": "1 GiB/s", "link.latency": "0.001 ns", "pe.scratch": 1000003}
    )
    file.write_text(machine.to_toml(), encoding="utf-8")
    assert load(file) == machine


def test_written_file_says_unit_help_and_role() -> None:
    assert '# bandwidth of one cube, shared by its PEs (0.001 to 1000000 GB/s; rate)\nbandwidth = "512 GB/s"' in TEXT
    assert "depth = 4  # slots" in TEXT


def test_a_machine_that_comes_with_kernbench_is_read_once_and_a_file_each_time(file: Path) -> None:
    assert load("reference") is load("reference")
    file.write_text('extends = "reference"\nname = "mine"\n[pe]\nscratch = "1 MiB"\n')
    first = load(file)
    file.write_text('extends = "reference"\nname = "mine"\n[pe]\nscratch = "2 MiB"\n')
    assert load(file).hash != first.hash


def test_a_machine_is_itself() -> None:
    assert load(REFERENCE) is REFERENCE


def test_bare_numbers_and_text_mean_the_same(file: Path) -> None:
    assert load(edited(file, '"512 GB/s"', "512")) == REFERENCE
    assert load(edited(file, '"512 GB/s"', '"512000 MB/s"')) == REFERENCE
    assert load(edited(file, '"4 MiB"', "4194304")) == REFERENCE


def test_byte_order_mark_and_crlf(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    assert load(file) == REFERENCE


def test_unknown_name() -> None:
    assert problems("refrence") == [
        "unknown machine 'refrence'; known: large, reference, small. Did you mean 'reference'? "
        "A path to a TOML file works as well."
    ]
    assert problems("")[0].startswith("unknown machine ''")


@pytest.mark.parametrize("value", [3, None, b"reference", {}])
def test_not_a_name_at_all(value: object) -> None:
    assert problems(value)[0].startswith(
        "a machine is a bundled name (large, reference, small), a path to a TOML file or a Machine; got"
    )


def test_missing_file(file: Path) -> None:
    assert problems("m.toml") == [
        "m.toml: cannot be read (No such file or directory); give the path of a TOML file "
        "or the name of a bundled machine: large, reference, small"
    ]


def test_file_without_a_suffix(file: Path) -> None:
    Path("plain").write_text(TEXT, encoding="utf-8")
    assert load("plain") == REFERENCE


def test_bundled_name_wins_over_a_file_but_a_path_does_not(file: Path) -> None:
    Path("small").write_text(TEXT, encoding="utf-8")
    assert load("small").name == "small"
    assert load("./small").name == "reference"
    assert load(Path("small")).name == "reference"


def test_directory(file: Path) -> None:
    Path("here").mkdir()
    assert problems("here") == ["here: is a directory; give the path of a TOML file in it"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(file: Path) -> None:
    file.write_text(TEXT)
    file.chmod(0)
    assert problems(file)[0].startswith("m.toml: cannot be read (Permission denied)")


def test_path_through_a_file(file: Path) -> None:
    file.write_text(TEXT)
    assert problems("m.toml/inner.toml")[0].startswith("m.toml/inner.toml: cannot be read (Not a directory)")


def test_path_with_a_null_byte() -> None:
    assert problems("a\0b.toml")[0].startswith("'a\\x00b.toml': cannot be read (embedded null byte)")


def test_path_too_long() -> None:
    assert "cannot be read (File name too long)" in problems("a" * 5000 + ".toml")[0]


def test_not_utf8(file: Path) -> None:
    file.write_bytes(b'name = "\xff"')
    assert problems(file) == ["m.toml: not UTF-8 at byte 8 (invalid start byte); save the file as UTF-8 text"]


def test_not_toml(file: Path) -> None:
    file.write_text("name = 'x'\nkind = = 3\n")
    assert problems(file) == ["m.toml: not valid TOML: Invalid value (at line 2, column 8)"]


def test_key_given_twice(file: Path) -> None:
    file.write_text("name = 'x'\nname = 'y'\n")
    assert problems(file)[0].startswith("m.toml: not valid TOML: Cannot overwrite a value (at line 2")


def test_nested_too_deeply(file: Path) -> None:
    file.write_text("x = " + "[" * 20_000)
    assert problems(file)[0].startswith("m.toml: not valid TOML: ")


def test_endless_file() -> None:
    assert problems(Path("/dev/zero")) == ["/dev/zero: larger than 262144 bytes; this is not a machine file"]


def test_unknown_table(file: Path) -> None:
    assert problems(extending(file, "[hmb]\nlatency = 3")) == [
        "m.toml: hmb = {...}: unknown table 'hmb'; known: name, kind, package, cube, pe, gemm, math, dma, hbm, ipcq, "
        "link, cube_link. Did you mean 'hbm'?"
    ]


def test_unknown_key(file: Path) -> None:
    assert problems(extending(file, "hbm.bandwith = 3")) == [
        "m.toml: hbm.bandwith = 3: unknown key 'bandwith'; known: bandwidth, latency. Did you mean 'bandwidth'?"
    ]
    assert problems(extending(file, "gemm.macs_per_cell_cycle.fp16 = 1"))[0].endswith("Did you mean 'f16'?")
    assert problems(extending(file, '"a\\nb" = 1'))[0].startswith("m.toml: 'a\\nb' = 1: unknown key")


def test_missing_key(file: Path) -> None:
    assert problems(edited(file, 'clock = "1 GHz"\n', "")) == [
        "m.toml: missing key pe.clock, in GHz (clock of the CPU and all engines); give it, "
        'or begin the file with extends = "reference". Allowed: 0.001 to 100 GHz'
    ]


def test_missing_table_names_each_key(file: Path) -> None:
    lines = problems(edited(file, "[ipcq]", "[ipcs]"))
    assert lines[0].startswith("m.toml: ipcs = {...}: unknown table 'ipcs'")
    assert lines[1].startswith("m.toml: missing key ipcq.depth, in slots (")
    assert lines[2].startswith("m.toml: missing key ipcq.slot, in bytes (")
    assert len(lines) == 3


def test_empty_file_names_every_key(file: Path) -> None:
    file.write_text("")
    assert len(problems(file)) == len(KEYS)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("pe.dispatch_cycles = true", "must be a number, not true or false. Allowed: 0 to 1000000 cycles"),
        ("pe.dispatch_cycles = 8.0", "must be a whole number. Allowed: 0 to 1000000 cycles"),
        ("pe.dispatch_cycles = -1", "out of range. Allowed: 0 to 1000000 cycles"),
        ("pe.clock = []", "must be a number, not an array. Allowed: 0.001 to 100 GHz"),
        ("pe.clock = 2020-01-01", "must be a number, not a value of type date. Allowed: 0.001 to 100 GHz"),
        ("pe.clock = 1000000000", "out of range. Allowed: 0.001 to 100 GHz"),
        ("pe.scratch = '0.3 B'", "must be a whole number. Allowed: 1 B to 1 TiB"),
        ("pe.scratch = 0", "out of range. Allowed: 1 B to 1 TiB"),
        ("hbm.bandwidth = nan", "must be finite. Allowed: 0.001 to 1000000 GB/s"),
        ("hbm.bandwidth = inf", "must be finite. Allowed: 0.001 to 1000000 GB/s"),
        ("hbm.bandwidth = 1e300", "out of range. Allowed: 0.001 to 1000000 GB/s"),
        ("hbm.latency = '3 GB'", "unknown unit 'GB'; known: ps, ns, us, \u00b5s, ms, s. Allowed: 0 to 1000000000 ns"),
        ("hbm.latency = {}", "must be a number, not a table. Allowed: 0 to 1000000000 ns"),
        ("hbm = 3", "must be a table with bandwidth, latency, not an integer"),
        ("gemm.macs_per_cell_cycle = 1", "must be a table with f16, bf16, f8e4m3, f8e5m2, i8, f32, not an integer"),
        ("package.cubes = []", "not a grid. Allowed: [rows, columns], each 1 to 1024"),
        ("package.cubes = [0, 4]", "not a grid. Allowed: [rows, columns], each 1 to 1024"),
        ("package.cubes = [4]", "not a grid. Allowed: [rows, columns], each 1 to 1024"),
        ("package.cubes = [2.0, 2]", "not a grid. Allowed: [rows, columns], each 1 to 1024"),
        ("package.cubes = [true, true]", "not a grid. Allowed: [rows, columns], each 1 to 1024"),
        ("package.cubes = 16", "not a grid. Allowed: [rows, columns], each 1 to 1024"),
        ("cube.pes = [1, 1025]", "not a grid. Allowed: [rows, columns], each 1 to 1024"),
        ("kind = 'npu'", "not known. Allowed: mesh"),
        ("kind = 3", "not known. Allowed: mesh"),
        ("name = ''", "must be text. Allowed: one line of 1 to 64 printable characters"),
        ("name = 3", "must be text. Allowed: one line of 1 to 64 printable characters"),
    ],
)
def test_bad_value(setting: str, words: str, file: Path) -> None:
    [line] = problems(extending(file, setting))
    key = setting.split(" = ")[0]
    assert line.startswith(f"m.toml: {key} = ")
    assert line.endswith(f": {words}")


def test_long_values_are_clipped(file: Path) -> None:
    [line] = problems(extending(file, f"ipcq.depth = '{'x' * 9000}'"))
    assert len(line) < 200
    [line] = problems(extending(file, f"ipcq.depth = 0x{'f' * 9000}"))
    assert line.startswith("m.toml: ipcq.depth = <an integer too large to print>: out of range.")


def test_integer_of_thousands_of_digits(file: Path) -> None:
    assert problems(extending(file, "ipcq.depth = 1" + "0" * 9000))[0].startswith("m.toml: not valid TOML: ")


def test_too_many_pes(file: Path) -> None:
    assert problems(extending(file, "package.cubes = [1024, 1024]\ncube.pes = [1, 2]")) == [
        f"m.toml: package.cubes x cube.pes = {2 * MOST_PES} PEs: out of range. Allowed: 1 to 1048576 PEs"
    ]
    assert load(extending(file, "package.cubes = [1024, 1024]\ncube.pes = [1, 1]")).cubes_per_package == MOST_PES


def test_all_problems_at_once(file: Path) -> None:
    text = "pe.clock = 0\nipcq.depth = 0\nlink.lag = 3\npackage.cubes = '1024x1024'"
    lines = problems(extending(file, text))
    assert [line.split(" = ")[0] for line in lines] == [
        "m.toml: pe.clock",
        "m.toml: ipcq.depth",
        "m.toml: link.lag",
        "m.toml: package.cubes x cube.pes",
    ]


def test_extends_a_bundled_machine(file: Path) -> None:
    machine = load(extending(file, "[gemm.macs_per_cell_cycle]\nf32 = 1"))
    assert machine == REFERENCE.override({"name": "m", "gemm.macs_per_cell_cycle.f32": 1})


def test_extends_a_file_beside_it(file: Path) -> None:
    Path("sub").mkdir()
    extending(Path("sub/base.toml"), 'name = "base"\nipcq.depth = 2')
    Path("sub/top.toml").write_text('extends = "base.toml"\nname = "top"\npe.clock = 2')
    assert load("sub/top.toml") == REFERENCE.override({"name": "top", "ipcq.depth": 2, "pe.clock": 2})


def test_extends_an_unknown_machine_still_checks_the_rest(file: Path) -> None:
    file.write_text('extends = "refrence"\npe.clock = 0')
    lines = problems(file)
    assert lines[0].startswith("m.toml: extends = 'refrence': unknown machine 'refrence'; known: large, reference,")
    assert lines[1:] == ["m.toml: pe.clock = 0: out of range. Allowed: 0.001 to 100 GHz"]


def test_extends_something_that_is_no_text(file: Path) -> None:
    file.write_text("extends = 3")
    assert problems(file) == [
        "m.toml: extends = 3: must be text, a bundled name (large, reference, small) or a path, not an integer"
    ]


def test_extends_a_broken_file_says_which(file: Path) -> None:
    extending(Path("base.toml"), "pe.clock = 0")
    file.write_text('extends = "base.toml"')
    assert problems(file) == [
        "m.toml: extends = 'base.toml': base.toml: pe.clock = 0: out of range. Allowed: 0.001 to 100 GHz"
    ]


def test_extends_in_a_circle(file: Path) -> None:
    file.write_text('extends = "other.toml"')
    Path("other.toml").write_text('extends = "./m.toml"')
    [line] = problems(file)
    assert line.endswith("goes round in a circle: m.toml -> other.toml -> m.toml; one of these files must stand alone")
    file.write_text('extends = "m.toml"')
    assert "goes round in a circle: m.toml -> m.toml;" in problems(file)[0]


def test_extends_too_far(file: Path) -> None:
    for i in range(20):
        Path(f"{i}.toml").write_text(f'extends = "{i + 1}.toml"')
    assert "too many files extend each other, at most 16 may" in problems("0.toml")[0]


fuzz = settings(max_examples=sampled.examples(60, 200), suppress_health_check=[HealthCheck.function_scoped_fixture])


def attempt(file: Path, content: bytes) -> Machine | None:
    """The machine in a file with this content, or None where it is refused properly."""
    file.write_bytes(content)
    try:
        return load(file)
    except MachineError as error:
        lines = str(error).split("\n")
    assert all(line.startswith("m.toml: ") for line in lines)
    return None


words = st.one_of(
    st.sampled_from(["name", "kind", "[", "]", "[[", "]]", "{", "}", "=", ".", ",", "\n", '"', "'", "'''", "#", " "]),
    st.sampled_from(KEYS),
    st.sampled_from(["extends", "true", "nan", "-inf", "1e5", "0x1f", "1979-05-27", "07:32:00", "20 ns", "reference"]),
    st.text(max_size=3),
)


@fuzz
@given(st.lists(words, max_size=40).map("".join))
def test_random_text_is_refused_properly(file: Path, text: str) -> None:
    attempt(file, text.encode("utf-8", "surrogatepass"))


@fuzz
@given(st.binary(max_size=60))
def test_random_bytes_are_refused_properly(file: Path, content: bytes) -> None:
    attempt(file, content)


@fuzz
@given(st.integers(0, len(TEXT)), st.integers(0, 12), words)
def test_damaged_files_are_refused_properly(file: Path, start: int, length: int, word: str) -> None:
    attempt(file, (TEXT[:start] + word + TEXT[start + length :]).encode("utf-8", "surrogatepass"))


values = st.one_of(
    st.sampled_from(
        ["true", "nan", "inf", "[]", "{}", "[[1, 2]]", "[1, 2, 3]", "1979-05-27", '""', '"\\u0000"', "{a.b=1}"]
    ),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"[0-9]{1,3}(\.[0-9])? ?(GB/s|GiB/s|ns|ms|MHz|KiB|B|slots)", fullmatch=True).map(lambda t: f'"{t}"'),
)


@fuzz
@given(st.sampled_from(KEYS), values)
def test_replaced_values_load_or_are_refused(file: Path, key: str, value: str) -> None:
    machine = attempt(file, f'extends = "reference"\n{key} = {value}\n'.encode())
    if machine is not None:
        assert Machine.build(tomllib.loads(machine.to_toml()), "again") == machine
