"""`--json`: every command writes a document with its schema, and every key of it is documented."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.npu.cpp.compiled import needs_compiler
from tests.ptx.front.test_commands import LAUNCH, SAXPY
from typer.main import get_command
from typer.testing import CliRunner

from kernbench.bench.discovery.new import write_new
from kernbench.cli import app
from kernbench.cli.output.document import error_data, wants_stdout
from kernbench.common.errors import BenchError, KernelError
from kernbench.result import SourceLocation, load_runs
from kernbench.result.run import SCHEMA

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "json.md").read_text()
# tables whose keys are names that the bench, kernel, machine or file brings along
NAMED = {
    "outputs", "sources", "panels", "counts", "instructions", "parameters", "arrays", "about", "about_arrays",
    "floors_ps", "limits_ps", "gap_ps", "critical_path_ps", "busy_ps", "utilisation", "sensitivity", "rates",
    "machine_overrides", "versions", "arguments", "placement", "commands_by_engine", "operations",
    "instructions_by_kind", "bytes", "rows", "traffic_bytes", "waits", "loops",
}  # fmt: skip
QUEUE = "    tl.store(o_ptr"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A bench of each target, a PTX file with its launch, a machine file, and two saved runs."""
    made = tmp_path_factory.mktemp("json")
    mesh = write_new("mesh", "ring", made)
    write_new("npu", "tiles", made)
    write_new("ptx", "warps", made)
    (made / "bad").mkdir()
    text = mesh.read_text().replace(QUEUE, '    tl.device_print("m", m)\n    tl.send(dir="E", src=k)\n' + QUEUE)
    (made / "bad" / "loud.py").write_text(text)
    (made / "saxpy.ptx").write_text(SAXPY)
    (made / "launch.toml").write_text(LAUNCH)
    x = np.random.default_rng(0).standard_normal(200).astype(np.float32)
    np.save(made / "x.npy", x)
    np.save(made / "want.npy", 2 * x)
    (made / "mine.toml").write_text('extends = "small"\n')
    return made


COMMANDS = {
    "list": "list",
    "run stop": "run ring.py --stop-at ring.py:21",
    "show": "show ring.py --last 2 --rank 1",
    "run": "run ring.py --set S=8",
    "run npu": "run tiles.py",
    "run ptx": "run warps.py",
    "run bad": "run bad/loud.py --set S=8",
    "sweep": "sweep ring.py --over n_ranks=1,2 --set S=8 --out sweep.csv --jobs 1",
    "tune": "tune ring.py --over n_ranks=1,2 --set S=8 --jobs 1",
    "report": "report run.json --html run.html",
    "compare": "compare run.json run-npu.json --run-a ring --run-b tiles",
    "check": "check bad",
    "new": "new mesh another",
    "machine list": "machine list",
    "machine show": "machine show reference",
    "machine check": "machine check mine.toml",
    "ptx info": "ptx info saxpy.ptx",
    "ptx check": "ptx check saxpy.ptx --elements 200",
    "ptx run": "ptx run saxpy.ptx --launch launch.toml",
    "ptx mutate": "ptx mutate saxpy.ptx --launch launch.toml",
    "ptx compare": "ptx compare saxpy.ptx -l launch.toml --with tests.ptx.comparing.planted:wrong_fma",
    "ptx emit": "ptx emit saxpy.ptx",
    "ptx show": "ptx show --program saxpy.ptx",
    "cache show": "cache show",
}
# of a compiler's cache; it writes what ptx run does. Programs have their own tests, which look at the keys
# need what this machine may lack, or another program
WITHOUT_A_SAMPLE = {"ptx launch", "exec", "cuda"}
# write, read or empty what this machine has compiled
WITHOUT_A_SAMPLE |= {"cache export", "cache import", "cache clear", "cache warm"}
# need a compiler of C++
WITH_COMPILER = {
    "npu test": f"npu test {ROOT / 'examples' / 'cpp_softmax'} --platform a2a3 --case three_rounds",
    "npu mutate": f"npu mutate {ROOT / 'examples' / 'cpp_softmax'} --platform a2a3 --case one_round",
}


def keys_of(value, inside=""):
    """Every key of a document that is no name of somebody's own."""
    if isinstance(value, dict):
        for key, held in value.items():
            if inside not in NAMED:
                yield key
            yield from keys_of(held, "" if inside in NAMED else key)
    elif isinstance(value, list):
        for held in value:
            yield from keys_of(held, inside)


def undocumented(document):
    return sorted({key for key in keys_of(document) if not re.search(rf"`{re.escape(key)}`", DOCUMENT)})


def undocumented_keys(commands):
    """What each command writes that docs/json.md does not name."""
    strange = {}
    for name, line in commands.items():
        target = f"{name.replace(' ', '-')}.json"
        done = CliRunner().invoke(app, [*line.split(), "--json", target], env={"COLUMNS": "200"})
        assert isinstance(done.exception, SystemExit | None), (name, done.exception)
        document = json.loads(Path(target).read_text())
        assert document["schema"] == SCHEMA, name
        assert line.startswith(document["command"]), name
        if missing := undocumented(document):
            strange[name] = missing
    return strange


def test_every_command_writes_a_documented_document(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert undocumented_keys(COMMANDS) == {}, "name these in docs/json.md"
    assert load_runs("run.json").bench == "ring"
    assert len(load_runs("check.json").runs) == 1
    assert not load_runs("ptx-run.json").runs[0].findings


@pytest.mark.programs
@needs_compiler
def test_commands_that_compile_write_a_documented_document(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert undocumented_keys(WITH_COMPILER) == {}, "name these in docs/json.md"


def test_no_command_is_left_out():
    def names(command, before=()):
        for name, one in getattr(command, "commands", {}).items():
            held = [*before, name]
            yield from names(one, held) if hasattr(one, "commands") else [" ".join(held)]

    assert set(names(get_command(app))) <= {*COMMANDS, *WITHOUT_A_SAMPLE, *WITH_COMPILER}


def test_an_undocumented_key_is_seen():
    assert undocumented({"schema": 2, "outputs": {"o": {"dtype": "f4"}}}) == []
    assert undocumented({"schema": 2, "frobnicated": 1}) == ["frobnicated"]


def test_standard_output_holds_the_document_alone(tmp_path, kernbench, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write_new("mesh", "mine", tmp_path)
    file.write_text("print('imported')\n" + file.read_text())
    done = kernbench("run", "mine.py", "--set", "S=8", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["safe"] is True
    assert "imported" in done.stderr
    assert "1 of 1 right and safe" in done.stderr
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize(
    ("arguments", "command", "words"),
    [
        (["run", "nobody", "--json", "-"], "run", "unknown bench 'nobody'"),
        (["machine", "check", "nowhere.toml", "--json=-"], "machine check", "nowhere.toml"),
        (["list", "--frob", "--json", "-"], "list", "--frob"),
    ],
)
def test_errors_are_documents_too(arguments, command, words, kernbench):
    done = kernbench(*arguments)
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert (told["schema"], told["command"]) == (SCHEMA, command)
    assert words in told["error"]["text"]
    assert words in done.stderr
    assert undocumented(told) == []


def test_an_error_tells_its_place_and_remedy():
    kernel = KernelError("shape", "3 by 4", "transpose it", SourceLocation("/k.py", 7, "k", "a @ b"))
    told = error_data(kernel, str(kernel))["error"]
    assert (told["place"]["file"], told["place"]["line"], told["remedy"]) == ("/k.py", 7, "transpose it")
    bench = BenchError("kernels/mine.py:12: launch of bench mine raised ValueError: no")
    place = error_data(bench, str(bench))["error"]["place"]
    assert place["file"].endswith("kernels/mine.py")
    assert place["line"] == 12
    assert error_data(BenchError("no such file: x"), "no such file: x")["error"]["place"] is None


def test_who_wants_standard_output():
    assert wants_stdout(["list", "--json", "-"])
    assert wants_stdout(["list", "--json=-"])
    assert not wants_stdout(["list", "--json", "out.json"])
