"""`kernbench exec`: programs run unchanged under it; what they launched is told, however they end."""

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.ptx.doors.kernels import ADD_ONE
from typer.testing import CliRunner

from kernbench.cli import app
from kernbench.common.errors import MisuseError
from kernbench.ptx.doors.opening import environment
from kernbench.ptx.doors.opening.environment import child_environment
from kernbench.ptx.doors.opening.installing import Doors
from kernbench.ptx.doors.options import Options
from kernbench.ptx.doors.records import read_records
from kernbench.ptx.doors.session import Launch, Notes
from kernbench.ptx.doors.summary import KernelSummary, read_session
from kernbench.ptx.front.commands import exec as command
from kernbench.ptx.front.commands import verdict
from kernbench.result.load import load_runs

pytestmark = pytest.mark.programs

# a program that launches as front ends do; it says how many threads, and what then
PROGRAM = f"""
import os, sys
from kernbench.ptx.doors.opening.environment import process_session

TEXT = '''{ADD_ONE}'''


def launch(n):
    session = process_session()
    x, y = session.memory.allocate(256, "x", written=True), session.memory.allocate(256, "y")
    kernel = session.load(TEXT).kernel("add_one")
    session.launch(kernel, 2, 64, [x.to_bytes(8, "little"), y.to_bytes(8, "little"), n.to_bytes(4, "little")])
"""


def run_under(folder, lines, *options):
    """Run a program under the command; what came of it, and the document."""
    (folder / "program.py").write_text(PROGRAM + lines)
    words = ["exec", "--json", str(folder / "out.json"), *options, "--", sys.executable, str(folder / "program.py")]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    return done, json.loads((folder / "out.json").read_text())


@pytest.fixture
def in_a_copy(monkeypatch):
    """Programs run in a copy of this process, which has imported what they need, and not in a Python of their own."""
    environment._process_session.cache_clear()
    monkeypatch.setattr(command, "_run", run_in_a_copy)


def run_in_a_copy(words, given, end_after):
    copy = os.fork()
    if not copy:
        try:
            os.environ.clear()
            os.environ.update(given)
            runpy.run_path(words[-1], run_name="__main__")
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(copy, 0)
    return command.Ended(os.waitstatus_to_exitcode(status))


def test_a_program_and_its_children_are_judged_by_kernel(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = "launch(64)\nlaunch(65)\nif not os.fork():\n    launch(65)\n    os._exit(0)\nos.wait()\n"
    done, document = run_under(tmp_path, lines, "--html", "out.html", "--junit", "out.xml", "--records", "kept")
    # the program ended well: the findings make the exit code
    assert done.exit_code == 1
    assert "out-of-bounds" in done.stderr
    assert "add_one: findings at lines of PTX are of instructions that name no line of a source" in done.stderr
    assert "sm_90a: 2 findings" in done.stderr
    assert (document["processes"], document["exit_code"], document["safe"]) == (2, 0, False)
    (kernel,) = document["kernels"]
    assert (kernel["kernel"], kernel["launches"], len(kernel["runs"])) == ("add_one", 3, 3)
    # what the processors did for launches is a part of what they did for the program
    assert 0 < kernel["cpu_seconds"] < document["cpu_seconds"]
    assert kernel["cpu_seconds"] == pytest.approx(sum(run["cpu_seconds"] for run in kernel["runs"]))
    # both launches have the same findings: each once, counted
    assert [(f["kind"], f["count"]) for f in kernel["findings"]] == [("out-of-bounds", 2)] * 2
    assert 'name="add_one"' in Path("out.xml").read_text()
    assert "add_one" in Path("out.html").read_text()
    assert [k.title for k in read_session(tmp_path / "kept").kernels] == ["add_one"]
    again = CliRunner().invoke(app, ["exec", "--records", "kept", "--", "true"])
    assert "has records of another run" in str(again.exception)


def test_what_was_found_before_a_process_died_in_a_launch_is_kept(tmp_path):
    dying = (
        "launch(65)\nimport kernbench.ptx.doors.device as d\nd.DoorDevice.run = lambda *a: os._exit(3)\nlaunch(64)\n"
    )
    done, document = run_under(tmp_path, dying, "--junit", str(tmp_path / "out.xml"))
    # the program's own exit code comes first
    assert done.exit_code == 3
    assert not document["kernels"][0]["safe"]
    assert "<failure" in (tmp_path / "out.xml").read_text()
    assert "add_one, launch 2: the process ended in it" in done.stderr
    assert len(document["kernels"][0]["findings"]) == 2
    assert [one["number"] for one in document["unfinished"]] == [2]


def test_a_pytest_for_which_warnings_are_errors_runs(tmp_path):
    """kernbench is imported before pytest, which warns of plugins whose assertions it cannot rewrite any more."""
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    words = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "-p", "no:xdist"]
    # a plugin that warns where pytest-xdist's is active
    words += ["-p", "no:benchmark"]
    done = CliRunner().invoke(app, ["exec", "--allow-no-launches", "--", *words, str(tmp_path / "test_it.py")])
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("options", "program", "code"),
    [
        ([], ["true"], 3),
        (["--allow-no-launches"], ["true"], 0),
        # the program's own exit code comes first, and a misspelt name counts as a finding
        ([], ["false"], 1),
        ([], ["sh", "-c", "exit 7"], 7),
        (["--only", "softmax"], ["true"], 1),
    ],
)
def test_a_program_that_launches_nothing_has_an_exit_code_of_its_own(options, program, code):
    done = CliRunner().invoke(app, ["exec", *options, "--", *program])
    assert done.exit_code == code
    assert "launched no kernel that was seen" in done.stderr
    assert ("exit code 3, or 0 with --allow-no-launches" in done.stderr) == (code == 3)


def test_options_reach_the_program(tmp_path, monkeypatch):
    options = Options("sm_80", skip=("add_*",), blocks=(1, 2))
    for name, value in child_environment(options, tmp_path / "records", {}).items():
        monkeypatch.setenv(name, value)
    session = environment._process_session.__wrapped__()
    assert session.options == options
    session.note({"event": "begin", "title": "k"})
    assert [record["title"] for record in read_records(tmp_path / "records")] == ["k"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "no-such-program"], "there is no program 'no-such-program'"),
        (["--arch", "sm_1", "--", "true"], "unknown architecture 'sm_1'"),
        (["--blocks", "x", "--", "true"], "write numbers and ranges"),
        (["--html", "nowhere/out.html", "--", "true"], "there is no folder nowhere"),
        (["--json", "/proc/kernbench.json", "--", "true"], "--json /proc/kernbench.json cannot be written"),
    ],
)
def test_misuse(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["exec", *words])
    assert message in str(done.exception)


def test_a_signal_ends_the_program_and_not_the_verdict(tmp_path):
    (tmp_path / "program.py").write_text(
        PROGRAM + "launch(65)\nprint('here', flush=True)\nimport time; time.sleep(600)\n"
    )
    words = [sys.executable, "-m", "kernbench", "exec", "--", sys.executable, "program.py"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "here\n"
        running.send_signal(signal.SIGTERM)
        _, told = running.communicate(timeout=600)
    assert running.returncode == 128 + signal.SIGTERM
    assert "out-of-bounds" in told
    assert "ended by SIGTERM" in told


def test_the_programs_own_sitecustomize_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 5\n")
    environment = child_environment(Options(), tmp_path / "records", {**os.environ, "PYTHONPATH": str(tmp_path)})
    script = "import sitecustomize, sys; print(theirs, 'numpy' in sys.modules, sitecustomize.__file__)"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    # a program without a front end pays for nothing
    assert done.stdout.split()[:2] == ["5", "False"]
    assert done.stdout.split()[2].startswith(str(tmp_path))


def test_doors_open_when_their_front_end_is_imported(tmp_path, monkeypatch, session_of):
    (tmp_path / "triton.py").write_text("__version__ = '2.1.0'\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "kernbench.ptx.doors.triton_door.door", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    doors = Doors(session_of)
    doors.install()
    try:
        with pytest.raises(MisuseError, match=r"Triton 2.1.0 is too old to run here: install 3.2 or newer"):
            importlib.import_module("triton")
    finally:
        doors.remove()
        sys.modules.pop("kernbench.ptx.doors.triton_door.door", None)


def test_records_are_read_in_the_order_of_their_time(tmp_path):
    for number, process in ((2, 20), (1, 10)):
        record = {"event": "begin", "process": process, "number": number, "title": f"k{number}"}
        path = tmp_path / f"{process}-a.launches.jsonl"
        path.write_text(json.dumps(record) + "\n")
        os.utime(path, (1000, 1000 + number))
    assert [r["title"] for r in read_records(tmp_path)] == ["k1", "k2"]


def test_the_document_is_documented(tmp_path):
    documented = (Path(__file__).parents[3] / "docs" / "json.md").read_text()
    record = Launch(1, "k", "k", "checked").to_dict()
    summary = read_session(tmp_path, [{**record, "process": 1, "time": 0.0}])
    document = command._data(summary, Options(), 0)
    keys = {*document, *document["kernels"][0], *document["kernels"][0]["runs"][0]}
    assert sorted(key for key in keys if f"`{key}`" not in documented) == []


@pytest.mark.parametrize(("does", "passed_over"), [("launch(100)", "1"), ("pass", "0")])
def test_a_program_that_launched_is_left_without_going_through_its_objects(tmp_path, does, passed_over):
    file = tmp_path / "frozen"
    noticed = f"""
import gc
file = os.open({str(file)!r}, os.O_WRONLY | os.O_CREAT)
{does}
gc.collect()
gc.callbacks.append(lambda phase, info: os.pwrite(file, b"%d" % (gc.get_freeze_count() > 1000), 0))
"""
    run_under(tmp_path, noticed)
    assert file.read_text() == passed_over


def test_what_the_program_compared_is_counted(tmp_path):
    location = {"file": "t.py", "line": 3, "function": "test", "text": ""}
    records = [{"event": "compared", "process": 1, "right": right, "site": location} for right in (True, False)]
    summary = read_session(tmp_path, records)
    assert (summary.compared, [str(one) for one in summary.wrong], summary.kernels) == (2, ["t.py:3"], [])
    assert list(verdict._notes(summary, 1))[-1].endswith("2 times (torch.testing.assert_close): wrong at t.py:3")
    # a program that failed is not called right
    (note,) = verdict._notes(read_session(tmp_path, records[:1]), 1)
    assert note.endswith("right each time; the program failed all the same, with exit code 1")


def test_times_that_the_program_measured_are_said_to_be_none_of_a_gpu(tmp_path):
    def notes(*predicted):
        return list(
            verdict._notes(
                read_session(tmp_path, [{"event": "timed", "process": 1, "predicted": one} for one in predicted])
            )
        )

    assert notes() == []
    assert notes(True) == ["the program measured time once and got what is predicted for its launches alone"]
    (note,) = notes(False, False)
    assert "2 times, which says nothing of a GPU" in note
    assert "--time" in note
    assert len(notes(True, False)) == 2


@pytest.mark.usefixtures("in_a_copy")
def test_launches_get_their_time_once_for_each_grid_and_unsafe_ones_none(tmp_path):
    done, document = run_under(tmp_path, "launch(64)\nlaunch(64)\n", "--time", "--html", str(tmp_path / "out.html"))
    assert done.exit_code == 0, done.stderr
    (kernel,) = document["kernels"]
    first, second = (run["predicted"] for run in kernel["runs"])
    # both have the same code, grid and numbers: the first was timed
    assert (first["timed_launch"], second["timed_launch"]) == (1, 1)
    assert kernel["predicted_ps"] == first["time_ps"] + second["time_ps"] > 0
    assert "predicted" in done.stderr
    assert "predicted for h200" in done.stderr
    row = document["in_a_row_ps"]
    assert row["stream"] == first["time_ps"] + second["following_ps"]["stream"]
    assert row["graph"] < row["stream"] < kernel["predicted_ps"]
    assert "all launches queued behind each other" in done.stderr
    assert "add_one: 100 % of the time predicted for the program" in done.stderr
    assert "2 launches, " in done.stderr
    assert "in all; this is launch 1, which takes longest" in done.stderr
    assert "where the warps spend their cycles:" in done.stderr
    # the document holds runs as reports and comparisons read them: the launch that takes longest, and all of them
    (run,) = load_runs(tmp_path / "out.json").runs
    assert run.metrics["time_ps"] == first["time_ps"]
    assert run.metrics["in_all"] == {"launches": 2, "time_ps": kernel["predicted_ps"], "longest": 1}
    assert run.timeline.unit == "ps"
    assert run.views["stalls"]
    assert len(run.launches) == 2


@pytest.mark.usefixtures("in_a_copy")
def test_the_time_is_that_of_the_named_gpu(tmp_path):
    done, _ = run_under(tmp_path, "launch(64)\n", "--gpu", "a100", "--arch", "sm_80")
    assert "predicted for a100" in done.stderr
    refused = CliRunner().invoke(app, ["exec", "--gpu", "a100", "--", "true"])
    assert "the kernel is for sm_90a, and a100 is sm_80: choose another GPU" in str(refused.exception)


@pytest.mark.usefixtures("in_a_copy")
def test_the_launch_that_takes_longest_is_explained(tmp_path):
    done, document = run_under(
        tmp_path, "launch(1)\nlaunch(64)\nlaunch(2)\n", "--time", "--records", str(tmp_path / "r")
    )
    assert done.exit_code == 0, done.stderr
    times = [run["predicted"]["time_ps"] for run in document["kernels"][0]["runs"]]
    (run,) = document["runs"]
    assert run["metrics"]["time_ps"] == max(times)
    assert run["metrics"]["in_all"]["longest"] == 1 + times.index(max(times))
    assert "--time" not in done.stderr


@pytest.mark.usefixtures("in_a_copy")
def test_a_launch_that_is_not_safe_gets_no_time(tmp_path):
    done, document = run_under(tmp_path, "launch(65)\nlaunch(64)\n", "--time")
    (kernel,) = document["kernels"]
    unsafe, safe = (run["predicted"] for run in kernel["runs"])
    assert unsafe == {"no_time": "it is not safe"}
    assert safe["timed_launch"] == 2
    assert kernel["predicted_ps"] is None
    assert "add_one: no time: it is not safe" in done.stderr


def test_the_process_that_waits_for_the_program_loads_no_emulator():
    script = "import sys, kernbench.ptx.front.commands.exec; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_who_ended_a_program_without_launches_is_said():
    words = [sys.executable, "-m", "kernbench.cli", "exec", "--", "sh", "-c", "kill -9 $$"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGKILL
    assert "launched no kernel that was seen" in done.stderr
    assert "the program was ended by SIGKILL" in done.stderr


@pytest.mark.parametrize("code", [124, 137, 200, 255])
def test_an_exit_code_of_the_programs_own_is_no_signal(code):
    done = CliRunner().invoke(app, ["exec", "--", "sh", "-c", f"exit {code}"])
    assert done.exit_code == code
    assert "launched no kernel that was seen" in done.stderr
    assert "ended" not in done.stderr


@pytest.mark.parametrize(
    ("options", "headline", "verdict"),
    [
        (["--skip", "add"], "sm_90a: nothing was checked", "not run"),
        (["--blocks", "7"], "sm_90a: nothing was checked", "not run"),
        (["--first", "0"], "sm_90a: nothing was checked", "not checked"),
        (["--only", "other"], "--only other: the program launched no kernel of such a name", "not checked"),
        (["--blocks", "1"], "sm_90a: no findings", "none"),
    ],
)
@pytest.mark.usefixtures("in_a_copy")
def test_what_was_not_looked_at_is_not_called_safe(options, headline, verdict, tmp_path):
    done, document = run_under(tmp_path, "launch(64)\n", *options)
    assert headline in done.stderr
    assert verdict_of(done) == verdict
    # a name that no kernel has is a mistake, and not a clean program; where nothing ran, nothing is known
    assert done.exit_code == {"not run": 3}.get(verdict, 1 if options[0] == "--only" else 0)
    assert document["exit_code"] == 0
    safe = True if verdict == "none" else None
    assert [document["safe"], *(kernel["safe"] for kernel in document["kernels"])] == [safe, safe]


@pytest.mark.usefixtures("in_a_copy")
def test_what_was_left_out_is_explained(tmp_path):
    done, _ = run_under(tmp_path, "launch(64)\n", "--blocks", "9-12")
    assert "add_one: a grid has 2 blocks (0 to 1), and --blocks begins with 9" in done.stderr
    assert "1 launch was left out: what would have been written counts as written" in done.stderr


@pytest.mark.usefixtures("in_a_copy")
def test_launches_that_did_not_end_are_counted(tmp_path):
    lines = "session = process_session()\ntry:\n    session.launch(session.load(TEXT).kernel('add_one'), 2, 64, [])\n"
    done, document = run_under(tmp_path, f"{lines}except Exception:\n    pass\n")
    assert "sm_90a: no findings, but 1 launch did not end" in done.stderr
    assert verdict_of(done) == "did not end"
    assert not document["safe"]


@pytest.mark.parametrize(
    ("launched", "said"),
    [
        ([(64, 32), (64, 64)], []),
        ([(64, 32), (64, 64), (65, 128)], ["add_one: wrong with B 128; not with B 32; B 64"]),
        # the same constants went well and wrong: they are not why
        ([(64, 32), (64, 64), (65, 64)], []),
    ],
)
def test_constants_of_launches_that_went_wrong_are_named_where_others_went_well(session_of, tmp_path, launched, said):
    session = session_of(folder=tmp_path)
    kernel = session.load(ADD_ONE).kernel("add_one")
    for n, width in launched:
        arrays = [session.memory.allocate(256, name, written=True) for name in "xy"]
        words = [*(one.to_bytes(8, "little") for one in arrays), n.to_bytes(4, "little")]
        notes = Notes(details={"constants": {"B": width, "num_warps": 1}})
        session.launch(kernel, 2, 64, words, notes=notes)
    assert [note for note in verdict._notes(read_session(tmp_path)) if "-lineinfo" not in note] == said


def verdict_of(done):
    """The last column of the only kernel."""
    (row,) = [line.split("│") for line in done.stderr.splitlines() if "│ add_one" in line]
    return row[-2].strip()


def test_notes_of_times_name_their_kernels_where_they_differ():
    """Which of the kernels has a lower bound?"""

    def said(*notes):
        kernels = [
            KernelSummary(title, [{"predicted": {"time_note": note}}] * 2)
            for title, note in zip("abc", notes, strict=True)
        ]
        return list(verdict._of_times(SimpleNamespace(kernels=kernels)))

    assert said("by the book", "by the book", "by the book") == ["by the book"]
    assert said("by the book", "a lower bound", "by the book") == ["a, c: by the book", "b: a lower bound"]
