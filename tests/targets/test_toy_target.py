"""A fourth target in one file does all that the bundled ones do, through the command line; nothing else names it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.targets import toy_target

from kernbench.common.errors import BenchError
from kernbench.result.finding import KINDS
from kernbench.result.run import Run, Status
from kernbench.targets import registry
from kernbench.targets.target import Target

HERE = Path(__file__).parent
MINE = 'name = "mine"\nkind = "toy"\n\n[unit]\nregisters = 2\nstep = 1\nmove = 1\n'


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder of installed packages with the toy in it, as pip would leave it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "toy_target.py").write_text((HERE / "toy_target.py").read_text())
    _metadata(folder, "toy = toy_target:LISTED")
    return folder


def _metadata(folder, entry):
    info = folder / "toy_board-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-board\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{entry}\n")


SCRIPT = """
import shlex, sys
from kernbench.cli import main
for line in sys.argv[1:]:
    sys.argv = ["kernbench", *shlex.split(line)]
    try:
        main()
    except SystemExit as end:
        print(f"<{end.code or 0}>", flush=True)
"""
# a process that has imported what commands need, but has not looked for targets yet; each request is for a copy of it
COPIED = """
import json, os, sys
import kernbench.bench, kernbench.report, kernbench.sweep
from kernbench.cli.commands import machine, report
from kernbench.targets import registry
assert not registry.listed.cache_info().currsize
while request := sys.stdin.readline():
    site, folder, script, lines = json.loads(request)
    copy = os.fork()
    if not copy:
        sys.path.insert(0, site)
        os.chdir(folder)
        sys.argv[1:] = lines
        exec(script)
        os._exit(0)
    _, status = os.waitpid(copy, 0)
    print(f"<ended with {status}>", flush=True)
"""


@pytest.fixture(scope="module")
def kernbench():
    """What each command line prints, all in one process that finds the packages of `site`; its exit code at the end."""
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", COPIED],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as copied:

        def run(site, folder, *lines):
            copied.stdin.write(json.dumps([str(site), str(folder), SCRIPT, lines]) + "\n")
            copied.stdin.flush()
            printed = ""
            while not printed.endswith("<ended with 0>\n"):
                line = copied.stdout.readline()
                assert line, printed
                printed += line
            parts = re.findall(r"(.*?<[0-9]+>)\n", printed, re.DOTALL)
            assert len(parts) == len(lines), printed
            return parts

        yield run
        copied.stdin.close()


def test_a_target_in_one_file_does_all_that_others_do(site, tmp_path, kernbench):
    printed = kernbench(
        site,
        tmp_path,
        "new toy my_toy",
        "run my_toy.py --html page.html --json runs.json --set board.unit.step=20",
        "run my_toy.py --json later.json",
        "check .",
        "report runs.json --html again.html",
        "compare runs.json later.json --html change.html",
        "sweep my_toy.py --over board.unit.step=1,100 --over n=4,8 --out sweep.csv --jobs 1",
        "sweep my_toy.py --over n=4 --metric gap_nothing_ps",
    )
    assert [text.strip()[-3:] for text in printed] == [*["<0>"] * 7, "<2>"], "\n".join(printed)
    _, ran, _, checked, _, compared, _, refused = printed
    assert "1 of 1 right and safe" in ran
    assert "my_toy" in checked
    assert "the other one" in compared
    assert "gap_the_other_one_ps" in refused
    assert "never work at once" in (tmp_path / "page.html").read_text()
    assert all("the other one" in (tmp_path / page).read_text() for page in ("page.html", "again.html", "change.html"))
    (saved,) = json.loads((tmp_path / "runs.json").read_text())["runs"]
    # three moves of 8 elements at 30 ps, two operations at 20 ps
    assert saved["metrics"]["time_ps"] == 8 * (3 * 30 + 2 * 20)
    rows = (tmp_path / "sweep.csv").read_text().splitlines()
    assert {"floor_bus_ps", "utilisation_unit", "gap_the_other_one_ps"} <= set(rows[0].split(","))
    assert len(rows) == 5
    assert all("True,True" in row for row in rows[1:])


def test_its_machine_files_commands_and_sources_are_known(site, tmp_path, kernbench):
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "mine.tape").write_text("by hand")
    lines = {
        "machine list": "bench_top: 4 registers",
        "machine check mine.toml": "good; board mine, 2 registers",
        "toy hello": "hello from a board",
        "--help": "Boards: say hello.",
        "new toy my_toy": "wrote my_toy.py",
        "run my_toy.py -m mine.toml": "1 of 1 right and safe",
        "run my_toy.py --html mine.tape": "write over a file of source",
        "run my_toy.py --set chip.unit.step=3": "it runs on a board: board.KEY",
        "run my_toy.py --set board.unit.steps=3": "Did you mean 'unit.step'?",
        "show my_toy.py": "records none by rank, as mesh kernels do",
    }
    for text, wanted in zip(kernbench(site, tmp_path, *lines), lines.values(), strict=True):
        assert wanted in text, text


def test_its_finding_is_reported_at_the_line_of_the_kernel(site, tmp_path, kernbench):
    file = tmp_path / "my_toy.py"
    file.write_text(toy_target.TEMPLATE.replace("    tape.load(1, x)\n", ""))
    (shown,) = kernbench(site, tmp_path, "run my_toy.py")
    assert "uninitialised-read" in shown
    line = file.read_text().splitlines().index("    tape.add(0, 1)") + 1
    assert f"my_toy.py:{line}" in shown
    assert shown.endswith("<1>")


def altered(tmp_path, old, new):
    """A folder of installed packages with a toy in which `old` is `new`."""
    text = (HERE / "toy_target.py").read_text()
    assert old in text
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "toy_target.py").write_text(text.replace(old, new))
    _metadata(folder, "toy = toy_target:LISTED")
    return folder


def test_time_needs_no_more_than_a_summary_lists(tmp_path, kernbench):
    """What `Target.summary` lists is enough for tables, explanations, pages, comparisons and saved runs."""
    spare = """        timed = {name: found[name] for name in ("time_ps", *TIMED_METRICS)}
        return replace(run, metrics={**run.metrics, **timed})
        rates = """
    folder = altered(tmp_path, "        rates = ", spare)
    file = folder / "toy_target.py"
    file.write_text(file.read_text().replace("import Measured, Target", "import TIMED_METRICS, Measured, Target"))
    printed = kernbench(
        folder,
        tmp_path,
        "new toy my_toy",
        "run my_toy.py --html page.html --json runs.json",
        "run my_toy.py --json later.json",
        "report runs.json --html again.html",
        "compare runs.json later.json",
    )
    assert [text.strip()[-3:] for text in printed] == ["<0>"] * 5, "\n".join(printed)
    assert "bus/unit" in printed[1]
    assert "critical path" not in printed[1]


def test_time_without_what_reports_ask_for_is_refused(tmp_path, kernbench):
    lacking = """        del found["gap_ps"], found["bound"]
        rates = """
    shown = kernbench(altered(tmp_path, "        rates = ", lacking), tmp_path, "new toy my_toy", "run my_toy.py")[1]
    assert "target toy gave a run a time without bound, gap_ps in its metrics" in " ".join(shown.split())
    assert shown.endswith("<2>")


def test_a_target_without_a_template_says_how_to_give_one(tmp_path, kernbench):
    folder = altered(tmp_path, "    def template(self):\n        return TEMPLATE\n", "")
    (shown,) = kernbench(folder, tmp_path, "new toy my_toy")
    assert "target toy has no template: give its Target (ToyTarget) a method template()" in " ".join(shown.split())
    assert shown.endswith("<2>")


def test_a_machine_that_two_targets_have_is_named_with_its_target(tmp_path, kernbench):
    folder = altered(tmp_path, '"bench_top"', '"small"')
    shown = kernbench(
        folder,
        tmp_path,
        "machine list",
        "machine show small",
        "machine show toy:small",
        "machine check mesh:small",
        "machine show toy:reference",
        "new toy my_toy",
        "run my_toy.py --set board=small",
    )
    assert "toy:small: 4 registers" in shown[0]
    assert "mesh:small: " in shown[0]
    assert "\nreference: " in f"\n{shown[0]}"
    assert "2 targets have a machine small: say which you mean, mesh:small or toy:small" in " ".join(shown[1].split())
    assert "board small" in shown[2]
    assert "mesh:small: good; machine small" in shown[3]
    assert "unknown machine 'reference'" in shown[4]
    assert "1 of 1 right and safe" in shown[6]
    assert [text[-3:] for text in shown] == ["<0>", "<2>", "<0>", "<0>", "<2>", "<0>", "<0>"]


def test_it_brings_a_kind_of_finding_of_its_own(tmp_path, kernbench):
    """Reported, saved, loaded and drawn as those of kernbench are."""
    row = 'sources=(".tape",), kinds={"cold-register": "a register read before it was loaded"},'
    folder = altered(tmp_path, 'sources=(".tape",),', row)
    file = folder / "toy_target.py"
    file.write_text(file.read_text().replace('"uninitialised-read"', '"cold-register"'))
    (tmp_path / "my_toy.py").write_text(toy_target.TEMPLATE.replace("    tape.load(1, x)\n", ""))
    ran, shown = kernbench(
        folder, tmp_path, "run my_toy.py --json runs.json", "report runs.json --html page.html --json again.json"
    )
    assert "cold-register" in ran
    assert "a register read before it was loaded" in ran
    assert (ran[-3:], shown[-3:]) == ("<1>", "<0>"), shown
    assert "a register read before it was loaded" in (tmp_path / "page.html").read_text()


def test_kinds_are_named_as_others_are():
    for kinds in ({"Cold": "x"}, {"cold register": "x"}, {"cold": ""}, {"race": "something else"}):
        with pytest.raises(ValueError, match="kind of finding"):
            registry.Listed("other", "other", kinds=kinds)
    assert not {"Cold", "cold register", "cold"} & set(KINDS)
    registry.Listed("other", "other", kinds={"race": KINDS["race"].meaning})
    assert hash(registry.Listed("other", "other"))


BAD = {
    "no_such_module:LISTED": "of package toy-board cannot be imported (ModuleNotFoundError",
    "other:TEXT": "is a str; kernbench.targets.registry.Listed is wanted",
    "other:LISTED": "which target 'npu' has already",
}


@pytest.mark.parametrize("entry", BAD)
def test_a_package_that_brings_no_target_is_named(entry, tmp_path, kernbench):
    text = (
        "from kernbench.targets.registry import Listed\nTEXT = ''\nLISTED = Listed('other', 'other', machine='chip')\n"
    )
    (tmp_path / "other.py").write_text(text)
    _metadata(tmp_path, f"toy = {entry}")
    (shown,) = kernbench(tmp_path, tmp_path, "list")
    assert BAD[entry] in " ".join(shown.split())
    assert shown.endswith("<2>")


def test_every_bundled_row_is_its_target():
    for row in registry.BUNDLED:
        assert registry.find(row.name).name == row.name
        assert not row.machine or registry.find(row.name).machines.default in registry.find(row.name).machines.bundled()
        assert not row.template or "NAME" in registry.find(row.name).template()
    with pytest.raises(BenchError, match=r"unknown target 'mash'; known: mesh, npu, ptx.* Did you mean 'mesh'"):
        registry.find("mash")


def test_a_run_of_a_target_nobody_knows_has_the_defaults():
    run = Run({}, [], ("check",), Status.FINISHED, origin={"target": "mystery"})
    target = registry.of_run(run)
    assert type(target) is Target
    assert target.retime(run, None).metrics["no_time"] == "this target has an order, but no clock"
    assert target.commands_of(run, 0) is None
    with pytest.raises(BenchError, match="records nothing that can be timed"):
        target.time_recording(None, None)


def test_rows_are_read_without_importing_a_target():
    script = (
        "import sys\n"
        "from kernbench.targets import registry\n"
        "assert registry.of_parameters(['chip', 'n']).name == 'npu'\n"
        "assert registry.of_parameters(['chip', 'machine']).name == 'npu'\n"
        "assert registry.of_parameters(['n']) is registry.DEFAULT\n"
        "assert {'machine', 'chip'} <= set(registry.machine_words())\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('kernbench.')}\n"
        "assert rooms == {'common', 'targets'}, rooms\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.programs
def test_a_bench_imports_no_target_but_its_own(tmp_path):
    barred = SCRIPT.replace("import shlex, sys\n", "import shlex, sys\nBARRED\n")
    barred = barred.replace("BARRED", "for name in ('npu', 'ptx'): sys.modules[f'kernbench.{name}'] = None")
    lines = ["new mesh ring", "sweep ring.py --over n_ranks=2 --jobs 1"]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", barred, *lines], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert re.findall(r"<[0-9]>", done.stdout) == ["<0>"] * 2, done.stdout + done.stderr
