"""Runs as JSON and back: what is kept, and how strange files are refused."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.report.samples import HERE, sample, timeline, unsafe

from kernbench.common.errors import MisuseError
from kernbench.result import load
from kernbench.result.columns import MOST, pack, unpack
from kernbench.result.load import load_runs, read_run
from kernbench.result.reading import Reader
from kernbench.result.run import write_json
from kernbench.result.spans import read_timeline, timeline_dict


@settings(max_examples=sampled.examples(30, 60))
@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers_come_back(values):
    back = unpack(pack(np.array(values, np.int64)), "here")
    assert back.tolist() == values


@settings(max_examples=sampled.examples(15, 30))
@given(st.lists(st.floats(width=32)))
def test_floats_come_back(values):
    array = np.array(values, np.float32).reshape(-1, 1)
    np.testing.assert_array_equal(unpack(pack(array), "here"), array)


def test_columns_take_the_smallest_type():
    assert [pack(np.array([0, top]))["type"] for top in (255, 256, 70_000, 2**40)] == ["u1", "u2", "u4", "i8"]
    assert pack(np.array([-1, 5]))["type"] == "i4"
    assert "shape" not in pack(np.zeros(3))
    assert len(json.dumps(pack(np.zeros(100_000)))) < 2000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "object"}, "a column of type 'object'; known: u1"),
        ({"count": MOST + 1}, "0 to 134,217,728 are possible"),
        ({"count": True}, "a column of True values"),
        ({"count": 4}, "does not hold the 4 bytes"),
        ({"count": 2}, "does not hold the 2 bytes"),
        ({"data": "***"}, "a damaged column"),
        ({"data": "AAAA"}, "a damaged column"),
        ({"data": 7}, "a column is wanted; got dict"),
        ({"shape": [2, 2]}, "3 values do not have the shape [2, 2]"),
    ],
)
def test_damaged_columns_are_refused(change, message):
    with pytest.raises(MisuseError) as caught:
        unpack({**pack(np.array([1, 2, 3])), **change}, "runs[0].name")
    assert message in str(caught.value)
    assert str(caught.value).startswith("runs[0].name: ")


def test_a_small_file_cannot_become_a_large_array():
    bomb = {**pack(np.zeros(10_000_000, np.uint8)), "count": 10}
    with pytest.raises(MisuseError, match="does not hold the 10 bytes"):
        unpack(bomb, "here")


def rows(line):
    return sorted(zip(*(c.tolist() for c in (line.lane, line.name, line.site, line.start, line.finish)), strict=True))


def flows(line):
    return sorted((int(line.start[a]), int(line.start[b])) for a, b in line.flows)


@pytest.mark.parametrize("unit", ["ps", "order"])
def test_a_timeline_comes_back(unit):
    line = timeline(unit=unit)
    back = read_timeline(Reader(json.loads(json.dumps(timeline_dict(line))), "t"))
    assert rows(back) == rows(line)
    assert flows(back) == flows(line)
    assert (back.unit, back.lanes, back.names, back.sites) == (line.unit, line.lanes, line.names, line.sites)
    assert back.critical_path == line.critical_path
    times, values = back.counters["slots in use"]
    assert (times.tolist(), values.tolist()) == ([10, 500, 900], [1, 2, 0])


def test_a_timeline_without_spans_comes_back():
    line = timeline(spans=0, path=False)
    line = type(line)(**{**line.__dict__, "flows": np.empty((0, 2), np.int64), "lanes": []})
    assert read_timeline(Reader(timeline_dict(line), "t")).total == 0


def test_a_run_comes_back(tmp_path):
    for run in (sample(), unsafe()):
        file = tmp_path / "run.json"
        run.save(file)
        (back,) = load_runs(file).runs
        assert json.dumps(back.to_dict()) == json.dumps(json.loads(json.dumps(run.to_dict())))
        assert (back.right, back.safe, back.status, back.findings) == (run.right, run.safe, run.status, run.findings)
        assert back.comparison == run.comparison
        assert back.outputs == {}


def test_a_run_keeps_the_source_it_was_about(tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("one\ntwo\n")
    from kernbench.result import Finding, Run, SourceLocation, Status

    run = Run({}, [Finding("race", "m", SourceLocation(str(kernel), 2, "f"))], ("race",), Status.FINISHED)
    run.save(tmp_path / "run.json")
    kernel.write_text("changed\nchanged\n")
    (back,) = load_runs(tmp_path / "run.json").runs
    assert back.findings[0].where.text == "two"
    assert back.findings[0].where.context() == [(1, "one"), (2, "two")]
    assert back.views["sources"][str(kernel)]["parts"] == [[1, ["one", "two"]]]


def test_a_run_keeps_the_source_of_the_lines_that_its_time_is_at(tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("one\ntwo\n")
    from kernbench.result import Run, Status

    rows = [{"source": {"file": str(kernel), "line": 2}, "text": "two", "share": 1.0}]
    run = Run({}, [], (), Status.FINISHED, views={"by_source": rows})
    assert run.to_dict()["sources"][str(kernel)]["parts"] == [[1, ["one", "two"]]]


def test_long_files_are_kept_around_the_places(tmp_path):
    from kernbench.result import SourceLocation
    from kernbench.result.sources import sources_of

    kernel = tmp_path / "long.ptx"
    kernel.write_text("".join(f"line {n} {'x' * 500}\n" for n in range(1, 5001)))
    held = sources_of(
        [SourceLocation(str(kernel), 100), SourceLocation(str(kernel), 110), SourceLocation(str(kernel), 4999), None]
    )
    parts = held[str(kernel)]["parts"]
    assert [(first, len(lines)) for first, lines in parts] == [(88, 35), (4987, 14)]
    assert all(len(line) <= 300 for _, lines in parts for line in lines)
    assert HERE not in held


def change(data, path, value):
    *way, last = path
    for key in way:
        data = data[key]
    data[last] = value


# what a stranger may write where, and what he is told
STRANGE = [
    (["schema"], 1, "was written by an older kernbench: schema 1, and this one reads 2"),
    (["schema"], 99, "was written by a newer kernbench"),
    (["schema"], "2", "does not say which schema it has"),
    (["status"], "fine", "runs[0].status: one of finished, deadlocked"),
    (["findings"], {"a": 1}, "runs[0].findings: a list is wanted"),
    (["findings", 0, "kind"], "rage", "unknown finding kind 'rage'; known: deadlock"),
    (["findings", 0, "where", "line"], -3, "where.line: a number from 0 on is wanted; got -3"),
    (["findings", 0, "others", 0, "role"], None, "others[0].role: a text is wanted; got None"),
    (["findings", 0, "blame"], {"who": "me", "name": "", "mended_in": ""}, "blame.who: unknown party 'me'"),
    (["checked"], [1], "checked[0]: a text is wanted"),
    (["comparison", 0, "max_abs"], "big", "comparison[0].max_abs: a number is wanted; got 'big'"),
    (["comparison", 0, "passed"], 1, "passed: true or false is wanted"),
    (["comparison", 0, "error_map", "block"], [0, 1], "blocks that are not empty"),
    (["comparison", 0, "error_map", "shape"], [9, 9], "is not the blocks of"),
    (["metrics", "time_ps"], "soon", "metrics.time_ps: a number is wanted"),
    (["metrics", "floors_ps"], {"hbm": "x"}, "metrics.floors_ps.hbm: a number is wanted"),
    (["metrics", "bound"], "nothing", "metrics.floors_ps: 'nothing' is missing"),
    (["metrics", "engines"], ["gemm", {}], "metrics.engines[1]: a text is wanted; got {}"),
    (["metrics", "rates"], {"gemm": {}}, "rates.gemm: 'amount' is missing"),
    (["metrics", "in_all"], {"launches": 2}, "metrics.in_all: 'time_ps' is missing"),
    (["views"], [], "runs[0].views: an object is wanted"),
    (["views", "by_source"], [{"source": {"file": 1}}], "views.by_source[0].source.file: a text is wanted"),
    (["sources"], {"a": {"name": "a", "parts": [[1]]}}, "parts[0]: the number of the first line"),
    (["timeline", "unit"], "s", "timeline.unit: ps or order is wanted"),
    (["timeline", "lanes"], [["a"]], "timeline.lanes[0]: a lane is its group and its name"),
    (["timeline", "name"], pack(np.full(400, 99)), "timeline.name: numbers from 0 on and below 12 are wanted"),
    (["timeline", "name"], pack(np.zeros(3, int)), "timeline.name: 400 whole numbers are wanted"),
    (["timeline", "length"], pack(np.full(400, -1)), "timeline.length: numbers from 0 on are wanted"),
    (["timeline", "start"], pack(np.full(400, 2**62)), "spans lie between 0 and"),
    (["timeline", "flows", "target"], pack(np.array([400, 0])), "flows.target: numbers from 0 on and below 400"),
    (["timeline", "path", "lane"], pack(np.zeros(2, int)), "path.lane: 17 whole numbers are wanted"),
    (["timeline", "counters", 0, "values"], pack(np.zeros(2)), "3 times and 2 values"),
]


@pytest.mark.parametrize(("path", "value", "message"), STRANGE)
def test_strange_runs_are_refused_at_their_place(tmp_path, path, value, message):
    run = unsafe()
    run.timeline, run.metrics = timeline(), sample().metrics
    data = json.loads(json.dumps(run.to_dict()))
    read_run(Reader(data, "runs[0]"))
    change(data, path, value)
    file = tmp_path / "strange.json"
    write_json(file, {"bench": "b", "runs": [data]})
    with pytest.raises(MisuseError) as caught:
        load_runs(file)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{file}.runs[0]")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x00\xff", "is no JSON"),
        (b"", "is no JSON"),
        (b"[]", "an object is wanted"),
        (b"3", "an object is wanted"),
        (b'{"runs": []}', "no run is in it"),
        (b'{"runs": [3]}', ".runs[0]: an object is wanted; got 3"),
        (b"{}", "is no run: it does not say which schema it has"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"runs": [{"schema": 2}]}', "'status' is missing"),
    ],
)
def test_files_that_are_none_of_ours(tmp_path, content, message):
    file = tmp_path / "strange.json"
    file.write_bytes(content)
    with pytest.raises(MisuseError) as caught:
        load_runs(file)
    assert message in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(MisuseError, match="cannot be read: No such file"):
        load_runs(tmp_path / "none.json")


def test_columns_hold_numbers_of_64_bits():
    for values in ([0, 2**64 - 1], [-(2**63), 2**63 - 1]):
        packed = pack(np.array(values, np.uint64 if values[0] == 0 else np.int64))
        assert unpack(packed, "here").tolist() == values


def test_a_document_of_another_version_is_refused(tmp_path):
    file = tmp_path / "newer.json"
    write_json(file, {"schema": 99, "command": "run", "bench": "b", "runs": [unsafe().to_dict()]})
    with pytest.raises(MisuseError, match="was written by a newer kernbench: schema 99"):
        load_runs(file)


def test_a_file_that_goes_on_without_end_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(load, "MOST_BYTES", 3 << 20)
    with pytest.raises(MisuseError, match="/dev/zero holds no run, or goes on without end: at most 3 MiB are read"):
        load_runs("/dev/zero")
    large = tmp_path / "large.json"
    large.write_text(" " * (3 << 20) + "{}")
    with pytest.raises(MisuseError, match="at most 3 MiB"):
        load_runs(large)
    large.write_text(" " * ((3 << 20) - 2) + "{}")
    with pytest.raises(MisuseError, match=r"schema|status"):
        load_runs(large)
