"""`kernbench check` and `kernbench new` from the command line."""

from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from kernbench.bench.discovery.new import write_new
from kernbench.cli import app
from kernbench.common.errors import BenchError, KernbenchError

RUNNER = CliRunner()


@pytest.fixture
def folder(tmp_path):
    """A good bench, a wrong one, a deadlock, one that does not load, and files that are no benches."""
    benches = tmp_path / "benches"
    (benches / "deep").mkdir(parents=True)
    text = write_new("mesh", "good", benches).read_text()
    (benches / "wrong.py").write_text(text.replace('"good"', '"wrong"').replace("tl.trans(k)", "tl.reshape(k, (d, S))"))
    (benches / "deep" / "stuck.py").write_text(
        text.replace('tl.send(dir="E", src=v)', 'tl.recv(dir="N", shape=(S, d))')
    )
    (benches / "broken.py").write_text("from kernbench.bench import Bench\nbench = Bench(\n")
    (benches / "helper.py").write_text("raise RuntimeError('must not be imported')\n")
    (benches / "_private.py").write_text("from kernbench.bench import Bench\nBench()\n")
    return benches


def test_a_folder_of_benches(folder, tmp_path):
    result = RUNNER.invoke(app, ["check", str(folder), "--junit", str(tmp_path / "out.xml")])
    assert result.exit_code == 1
    assert "1 of 4 right and safe" in result.output
    assert "good.py::good" in result.output
    assert "must not be imported" not in result.output
    suites = {
        suite.get("name").rsplit("/", 1)[-1]: suite for suite in ElementTree.parse(tmp_path / "out.xml").getroot()
    }
    assert set(suites) == {"good.py", "wrong.py", "stuck.py", "broken.py"}
    assert suites["good.py"].get("failures") == "0"
    assert suites["wrong.py"].find("testcase/failure").get("type") == "wrong"
    assert suites["stuck.py"].find("testcase/failure").get("type") in ("deadlock", "no-neighbour", "misuse")
    assert "broken.py" in suites["broken.py"].find("testcase/error").text


def test_files_that_cannot_be_read_and_benches_that_leave(tmp_path):
    text = write_new("mesh", "good", tmp_path).read_text()
    (tmp_path / "leaves.py").write_text(
        text.replace("    return torch.launch(", "    raise SystemExit(0)\n    return (")
    )
    (tmp_path / "nowhere.py").symlink_to("gone.py")
    (tmp_path / "folder.py").mkdir()
    result = RUNNER.invoke(app, ["check", str(tmp_path)])
    assert result.exit_code == 1
    assert "1 of 3 right and safe" in result.output
    assert "launch of bench good raised SystemExit: 0" in result.output
    assert "nowhere.py cannot be read: No such file" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "mine.py", "--json", "mine.py"],
        ["run", "mine.py", "--html", "link.html"],
        ["run", "mine.py", "--stop-at", "mine.py:17", "--dump", "k.ptx"],
        ["run", "mine.py", "--write-baseline", "launch.toml", "--reason", "why"],
        ["check", ".", "--junit", "mine.py"],
        ["ptx", "run", "k.ptx", "--out", "k.ptx"],
        ["ptx", "launch", "k.ptx", "--write-launch", "launch.toml"],
    ],
)
def test_source_is_not_written_over(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    write_new("mesh", "mine", tmp_path)
    (tmp_path / "k.ptx").write_text("// a kernel\n")
    (tmp_path / "launch.toml").write_text("block = [4]\n")
    (tmp_path / "link.html").symlink_to("mine.py")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    result = RUNNER.invoke(app, arguments)
    assert isinstance(result.exception, KernbenchError)
    assert "would write over" in str(result.exception) or "a baseline holds" in str(result.exception)
    # Python may keep bytecode of the bench beside it
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before


def test_all_good(tmp_path):
    write_new("mesh", "good", tmp_path)
    result = RUNNER.invoke(app, ["check", str(tmp_path)])
    assert result.exit_code == 0
    assert "1 of 1 right and safe" in result.output


def test_no_bench_and_no_folder(tmp_path):
    for folder, words in ((tmp_path, "has no bench"), (tmp_path / "no", "there is no folder")):
        result = RUNNER.invoke(app, ["check", str(folder)])
        assert isinstance(result.exception, BenchError)
        assert words in str(result.exception)


def test_new_says_what_next(tmp_path):
    result = RUNNER.invoke(app, ["new", "ptx", "mine", "--dir", str(tmp_path)])
    assert result.exit_code == 0
    assert (tmp_path / "mine.py").is_file()
    assert "next: kernbench run" in result.output


def test_known_findings(tmp_path):
    file = write_new("mesh", "mine", tmp_path)
    file.write_text(file.read_text().replace("    tl.store(o_ptr", '    tl.send(dir="E", src=k)\n    tl.store(o_ptr'))
    first = RUNNER.invoke(app, ["run", str(file), "--write-baseline", str(tmp_path / "k.toml"), "--reason", "a test"])
    assert first.exit_code == 1
    assert "kernbench: allow" not in first.output
    assert f"1 finding acknowledged, from now on with --baseline {tmp_path / 'k.toml'}" in first.output
    plain = RUNNER.invoke(app, ["run", str(file)])
    assert "kernbench: allow message-unreceived" in plain.output
    second = RUNNER.invoke(app, ["run", str(file), "--baseline", str(tmp_path / "k.toml")])
    assert second.exit_code == 0, second.output
    assert "is acknowledged (baseline): a test" in second.output
    refused = RUNNER.invoke(app, ["run", str(file), "--write-baseline", str(tmp_path / "k.toml")])
    assert "needs a reason" in str(refused.exception)


def test_ordinary_modules_are_left_alone(tmp_path):
    write_new("mesh", "good", tmp_path)
    (tmp_path / "registry.py").write_text(
        "from kernbench.bench import Bench\n\ndef make():\n    return Bench('x')\n\n"
        "raise RuntimeError('one is wanted: bench = Bench(...)')\n"
    )
    (tmp_path / "runner.py").write_text("bench = dict(name='not one of kernbench')\n")
    (tmp_path / "made.py").write_text(
        "from good import bench as base\nfrom dataclasses import replace\n\n"
        "bench = replace(base, name='made')\ndel base\n"
    )
    result = RUNNER.invoke(app, ["check", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "2 of 2 right and safe; 2 bench files among 4 Python files" in result.output
    assert "made.py::made" in result.output


def test_a_baseline_for_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write_new("mesh", "mine", tmp_path)
    file.write_text(file.read_text().replace("    tl.store(o_ptr", '    tl.send(dir="E", src=k)\n    tl.store(o_ptr'))
    first = RUNNER.invoke(app, ["check", ".", "--write-baseline", "k.toml", "--reason", "a test"])
    assert first.exit_code == 1
    second = RUNNER.invoke(app, ["check", ".", "--baseline", "k.toml"])
    assert second.exit_code == 0, second.output
    assert "\nmine.py:28: message-unreceived of mine is acknowledged (baseline): a test" in second.output
    third = RUNNER.invoke(app, ["run", "mine.py", "--baseline", "k.toml"])
    assert "no time: its messages do not pair up: message-unreceived is acknowledged" in third.output


@pytest.mark.parametrize(
    ("words", "bytes_each"), [(["--max-memory", "1.5GiB"], 3 << 29), (["--memory", "1.5"], 3 << 29), ([], None)]
)
def test_memory_is_said_as_in_sweeps(words, bytes_each, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr("kernbench.cli.commands.check.check_files", lambda files, how: given.append(how) or iter(()))
    write_new("mesh", "good", tmp_path)
    RUNNER.invoke(app, ["check", str(tmp_path), *words])
    assert [how.memory for how in given] == [bytes_each]


def test_too_little_memory_is_refused(tmp_path):
    write_new("mesh", "good", tmp_path)
    result = RUNNER.invoke(app, ["check", str(tmp_path), "--max-memory", "4"])
    assert isinstance(result.exception, BenchError)
    assert "--max-memory 4: a process needs 64 MiB at least" in str(result.exception)


def test_a_bench_that_breaks_numpy_is_named_with_its_line(tmp_path):
    file = write_new("mesh", "good", tmp_path)
    file.write_text(file.read_text() + "\n\nnp.zeros = None\n")
    line = len(file.read_text().splitlines())
    result = RUNNER.invoke(app, ["check", str(file)])
    assert result.exit_code == 1
    assert f"good.py:{line}: numpy.zeros is not NumPy's own any more" in result.output
