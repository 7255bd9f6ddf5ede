"""A session: launches by bytes, kept and recorded as they happen, treated as the options say."""

import json
import os
import signal
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.ptx.doors.kernels import ADD_ONE, word

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.doors import forecast
from kernbench.ptx.doors.arena import LARGE, POISON_WORD
from kernbench.ptx.doors.forecast import Forecast, LaunchRefusedError
from kernbench.ptx.doors.options import Options, options_from, read_options
from kernbench.ptx.doors.records import read_records
from kernbench.ptx.doors.session import Notes, UnsafeLaunchError
from kernbench.ptx.doors.terms.blame import Compiler
from kernbench.ptx.launching.blocks import read_blocks
from kernbench.ptx.text.errors import PtxError
from kernbench.result.finding import Blame, SourceLocation


def arrays(session, n=64):
    x = session.memory.allocate(4 * n, "x", written=True)
    return x, session.memory.allocate(4 * n, "y")


def launch(session, x, y, n=64, blocks=1, **more):
    kernel = session.load(ADD_ONE).kernel("add_one")
    return session.launch(kernel, blocks, 64, [word(x), word(y), word(n, 4)], **more)


def test_a_module_is_kept_with_its_variables(session_of):
    session = session_of()
    x, y = arrays(session)
    assert session.load(ADD_ONE) is session.load(ADD_ONE)
    address, nbytes = session.load(ADD_ONE).variable("launches")
    launch(session, x, y)
    launch(session, x, y)
    value = session.memory.view(address, nbytes).view(np.uint32)
    assert value.tolist() == [9]
    value[...] = 100
    launch(session, x, y)
    assert value.tolist() == [101]
    with pytest.raises(MisuseError, match="no variable 'lunches'; it has: launches"):
        session.load(ADD_ONE).variable("lunches")
    with pytest.raises(MisuseError, match="no kernel 'add_two'; it has: add_one"):
        session.load(ADD_ONE).kernel("add_two")


def test_a_launch_says_what_happened(session_of):
    session = session_of()
    x, y = arrays(session)
    site = SourceLocation("their.py", 12)
    first, second = launch(session, x, y, title="plus", site=site), launch(session, x, y, n=65, blocks=2)
    assert (first.number, first.title, first.site, first.ok, first.status) == (1, "plus", site, True, "finished")
    assert {f.kind for f in second.findings} == {"out-of-bounds"}
    assert session.launches == [first, second]
    assert session.findings == second.findings
    with pytest.raises(AssertionError, match=r"add_one \(launch 2\): finished\n  .*out-of-bounds"):
        session.assert_safe()


def test_parameters_of_the_wrong_size_are_refused(session_of):
    session = session_of()
    x, y = arrays(session)
    with pytest.raises(MisuseError, match=r"takes parameters of \[8, 8, 4\] bytes; it was given \[8, 8\]"):
        session.launch(session.load(ADD_ONE).kernel("add_one"), 1, 64, [word(x), word(y)])
    assert session.launches[0].status == "failed"


def test_what_the_emulator_lacks_is_an_error_with_the_line_of_the_program(session_of):
    session = session_of()
    bare = ADD_ONE.replace("add.s32 %r7, %r6, 1", "fancy.s32 %r7, %r6, 1")
    text = bare.replace(".visible", '.file 1 "norms.py"\n.visible').replace("    fancy", ".loc 1 12 3\n    fancy")
    for _ in range(2):
        with pytest.raises(
            PtxError, match=r"unknown instruction 'fancy'(.|\n)*PTX of 'add_one' \(norms.py:12\)"
        ) as raised:
            session.launch(session.load(text).kernel("add_one"), 1, 32, [word(0), word(0), word(0, 4)])
        assert str(raised.value).count("If a GPU runs it") == 1
        assert "fancy.s32 %r7, %r6, 1" in str(raised.value)
    # no lines: the kernel alone
    with pytest.raises(PtxError, match=r"PTX of 'add_one'\. If"):
        session.launch(session.load(bare).kernel("add_one"), 1, 32, [word(0), word(0), word(0, 4)])
    assert [launch.status for launch in session.launches] == ["failed"] * 3
    assert "norms.py:12" in session.launches[0].error


def test_records_are_there_as_soon_as_they_are_made(session_of, tmp_path):
    session = session_of(tmp_path)
    x, y = arrays(session)
    launch(session, x, y)
    launch(session, x, y, n=65, blocks=2)
    events = [(r["event"], r["number"], len(r.get("findings", []))) for r in read_records(tmp_path)]
    assert events == [("begin", 1, 0), ("launch", 1, 0), ("begin", 2, 0), ("launch", 2, 2)]


def test_processes_that_fork_or_are_killed_leave_what_they_did(session_of, tmp_path):
    session = session_of(tmp_path)
    x, y = arrays(session)
    launch(session, x, y)
    with warnings.catch_warnings():
        # of threads of the matrix library, which the child does not use
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        launch(session, x, y, n=65, blocks=2)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    launch(session, x, y)
    records = [r for r in read_records(tmp_path) if r["event"] == "launch"]
    found = {
        process: [len(r["findings"]) for r in records if r["process"] == process] for process in (os.getpid(), child)
    }
    assert found == {os.getpid(): [0, 0], child: [2]}
    # the child's memory was its own
    assert not session.memory.undefined(y, 256).any()


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    (tmp_path / "1-a.launches.jsonl").write_text(json.dumps({"event": "begin"}) + '\n{"event": "lau')
    assert [r["event"] for r in read_records(tmp_path)] == ["begin"]


def test_what_is_not_chosen_runs_without_checks(session_of):
    session = session_of(first=1)
    x, y = arrays(session)
    treatments = [launch(session, x, y, n=65, blocks=2).treatment for _ in range(2)]
    assert treatments == ["checked", "unchecked"]
    assert [len(one.findings) for one in session.launches] == [2, 0]


@pytest.mark.parametrize("nbytes", [512, LARGE])
def test_what_a_launch_without_checks_stores_counts_as_written(session_of, nbytes):
    session = session_of(only=("softmax*",))
    memory = session.memory
    x, y = memory.allocate(256, "x", written=True), memory.allocate(nbytes, "y")
    assert launch(session, x, y).treatment == "unchecked"
    assert not memory.undefined(y, 256).any()
    assert memory.undefined(y + 256, 256).all()
    assert launch(session_of(), y, x).ok
    memory.free(y)


def test_what_is_skipped_does_not_run(session_of):
    session = session_of(skip=("add_*",))
    x, y = arrays(session)
    skipped = launch(session, x, y)
    assert (skipped.treatment, skipped.status, skipped.ok) == ("left out", "not run", True)
    assert (session.memory.view(y, 256).view(np.uint32) == POISON_WORD).all()


# what keeps a launch from running whole -> the options, and how the first launch is made
NOT_WHOLE = {
    "skip": ({"skip": ("add_*",)}, {}),
    "blocks": ({"blocks": (1,)}, {"n": 64, "blocks": 2}),
    "none of its blocks": ({"blocks": (7,)}, {}),
}


@pytest.mark.parametrize("case", NOT_WHOLE)
def test_what_a_launch_that_did_not_run_whole_could_write_is_no_fault_to_read(session_of, case):
    options, how = NOT_WHOLE[case]
    session = session_of(**options)
    x, y = arrays(session)
    z = session.memory.allocate(256, "z")
    launch(session, x, y, **how)
    other = session_of()
    reader = other.load(ADD_ONE.replace("add_one", "reader")).kernel("reader")
    assert other.launch(reader, 1, 64, [word(y), word(z), word(64, 4)]).ok
    # what it could not reach is as it was
    unwritten = session.memory.allocate(256, "unwritten")
    later = other.launch(reader, 1, 64, [word(unwritten), word(z), word(64, 4)])
    assert [finding.kind for finding in later.findings] == ["uninitialised-read"]


def test_what_a_table_of_addresses_leads_to_counts_as_written_where_a_launch_did_not_run(session_of):
    session = session_of(skip=("add_*",))
    x, y = arrays(session)
    table = session.memory.allocate(256, "table", written=True)
    session.memory.view(table, 8)[...] = np.frombuffer(word(y), np.uint8)
    launch(session, x, table)
    assert not session.memory.undefined(y, 256).any()


def written(session, address):
    """Which quarters of 1024 bytes hold something else than what nobody wrote."""
    words = session.memory.view(address, 1024).view(np.uint32).reshape(4, -1)
    return (words != POISON_WORD).all(axis=1).tolist()


def test_some_blocks_of_a_grid(session_of):
    session = session_of(blocks=(1, 3, 9))
    x, y = arrays(session, 256)
    assert launch(session, x, y, n=256, blocks=4).ok
    assert written(session, y) == [False, True, False, True]
    # other launches of the program have grids that are large enough
    assert launch(session, x, y, blocks=1).treatment == "left out"


def test_clusters_of_blocks_that_are_asked_for_run_whole(session_of):
    session = session_of(blocks=(2,))
    x, y = arrays(session, 256)
    assert launch(session, x, y, n=256, blocks=4, cluster=2).ok
    assert written(session, y) == [False, False, True, True]


def test_the_program_is_stopped_at_a_finding(session_of):
    session = session_of(stop_at_finding=True)
    x, y = arrays(session)
    launch(session, x, y)
    with pytest.raises(UnsafeLaunchError, match=r"add_one: .*out-of-bounds") as caught:
        launch(session, x, y, n=65, blocks=2)
    assert caught.value.launch is session.launches[1]


def test_a_launch_of_hours_is_refused_at_once(session_of):
    session = session_of(max_seconds=60)
    x, y = arrays(session)
    with pytest.raises(
        LaunchRefusedError, match=r"65,000,000 blocks of 64 threads would take \d+ \w+ here at least.*--blocks"
    ):
        launch(session, x, y, blocks=65_000_000)
    assert session.launches[0].status == "failed"
    assert (
        session_of(max_seconds=60, blocks=(0,))
        .launch(session.load(ADD_ONE).kernel("add_one"), 65_000_000, 64, [word(x), word(y), word(64, 4)])
        .ok
    )


def test_a_launch_whose_loops_take_hours_is_stopped_when_its_first_blocks_show_it(session_of, monkeypatch):
    session = session_of(max_seconds=60)
    x, y = arrays(session)
    seconds = iter(range(0, 100_000, 100))
    monkeypatch.setattr(forecast, "clock", lambda: next(seconds))
    with pytest.raises(LaunchRefusedError, match=r"stopped: \d+ of its 2,560 blocks took 100 seconds, so all would "):
        launch(session, x, y, blocks=2560)
    assert session.launches[0].status == "failed"
    # with time enough it runs to its end; the same launch, of a loop that measures, is known
    seconds = iter(range(100_000))
    assert launch(session, x, y, n=63, blocks=2560).ok
    with pytest.raises(LaunchRefusedError, match=r"stopped: \d+ of its 2,560 blocks took 100 seconds, so all would "):
        launch(session, x, y, blocks=2560)
    assert session.launches[2].error == session.launches[0].error
    assert launch(session_of(max_seconds=60), *arrays(session), blocks=2560).ok


def test_what_the_first_blocks_took_is_not_looked_at_too_soon(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(forecast, "clock", lambda: now[0])
    foreseen = Forecast("k", 1_000_000, 128, True, 60.0)
    foreseen.before(10)
    now[0] = 1.9
    foreseen.during(1)
    now[0] = 2.1
    foreseen.during(0)
    foreseen.during(3_600)
    with pytest.raises(LaunchRefusedError, match=r"took 2.1 seconds, so all would take about 583 hours here"):
        foreseen.during(1)


def test_an_interrupted_launch_leaves_memory_as_others_need_it(session_of, monkeypatch):
    session = session_of()
    x, y = arrays(session)

    def interrupt(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kernbench.ptx.emulator.engine.launch.Launch.run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            launch(session, x, y)
    assert launch(session, x, y).ok


def test_a_launch_that_takes_longer_than_all_before_keeps_its_explanation(session_of):
    session = session_of(time=True)
    x, y = arrays(session)
    launch(session, x, y)
    first = session.launches[-1]
    assert first.run.metrics["time_ps"] == first.predicted["time_ps"] > 0
    assert first.run.views["stalls"]
    assert first.run.timeline.unit == "ps"
    assert first.run.recording is None
    # it is like the first
    launch(session, x, y)
    assert session.launches[-1].predicted["timed_launch"] == 1
    assert session.launches[-1].run.timeline is None


def test_a_fault_of_the_compiler_leaves_the_time_beside_a_warning(session_of):
    session = session_of(time=True)
    x, y = arrays(session)
    # one thread writes beyond both arrays
    launch(session, x, y, n=65, blocks=2)
    assert session.launches[-1].predicted == {"no_time": "it is not safe"}
    maker = Compiler("Maker", "1.0", frozenset({"out-of-bounds"}), {"out-of-bounds": "2.0"})
    launch(session, x, y, n=65, blocks=2, notes=Notes(compiler=maker))
    found = session.launches[-1]
    assert {finding.blame for finding in found.findings} == {Blame("compiler", "Maker 1.0", "2.0")}
    assert not found.ok
    assert found.predicted["time_ps"] > 0
    assert found.predicted["caveat"].endswith("with a compiler's fault")
    assert found.predicted["time_facts"][0] == (
        "warning: out-of-bounds is a fault of the compiler (Maker 1.0), not of the program; 2.0 and later do not have "
        "it; this is the time of the code as it is"
    )
    # a later release may still have it
    launch(session, x, y, n=65, blocks=2, notes=Notes(compiler=replace(maker, version="2.1")))
    assert session.launches[-1].findings[0].blame == Blame("compiler", "Maker 2.1")


def test_a_run_with_a_timeline_is_kept_beside_the_records(session_of, tmp_path):
    session = session_of(tmp_path, keep_timelines=True)
    timeline = SimpleNamespace()
    saved = []
    run = SimpleNamespace(timeline=timeline, views={}, save=saved.append)
    session._slim(3, run)
    session._slim(4, SimpleNamespace(timeline=None, views={}, save=saved.append))
    assert saved == [tmp_path / f"{os.getpid()}-000003.run.json"]
    assert run.timeline is timeline


def test_emulated_gives_a_session(tmp_path):
    with ptx.emulated("sm_80", folder=tmp_path, first=3) as session:
        assert isinstance(session, ptx.Session)
        x, y = arrays(session)
        launch(session, x, y)
        session.assert_safe()
    assert len(list(read_records(tmp_path))) == 2


def test_options_survive_the_way_to_another_process():
    options = options_from({"arch": "sm_100a", "only": ("a", "b*"), "blocks": (1, 2), "schedule": 3})
    assert read_options(options.to_json()) == options
    with pytest.raises(MisuseError, match=r"unknown option 'onyl'.*Did you mean 'only'"):
        options_from({"onyl": ()})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"arch": "sm_12"}, "unknown architecture"),
        ({"first": -1}, "first=-1"),
        ({"max_seconds": 0}, "max_seconds=0"),
        ({"blocks": ()}, "blocks"),
        ({"schedule": "sideways"}, "sideways"),
    ],
)
def test_options_that_make_no_sense(wrong, message):
    with pytest.raises(MisuseError, match=message):
        Options(**wrong)


def test_blocks_as_people_write_them():
    assert read_blocks("0-3, 17,2") == (0, 1, 2, 3, 17)
    for wrong in ("a", "3-1", "0-9999999", ""):
        with pytest.raises(MisuseError, match="blocks"):
            read_blocks(wrong)


def test_seconds_of_processors_are_those_of_workers_too(monkeypatch):
    monkeypatch.setattr(forecast.time, "process_time", lambda: 4.0)
    monkeypatch.setattr(forecast.os, "times", lambda: SimpleNamespace(children_user=2.0, children_system=1.0))
    assert forecast.cpu_clock() == 7.0
