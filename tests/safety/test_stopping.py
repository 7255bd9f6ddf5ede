"""Where a run is asked to stop, and what a kernel's variables hold."""

from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

from kernbench.common.errors import MisuseError
from kernbench.safety.held import held_in
from kernbench.safety.stopping import StopAt, Stopper, stop_at


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("finding", StopAt()),
        ("a.py:12", StopAt("a.py", 12)),
        ("dir/a.py:12#3", StopAt("dir/a.py", 12, 3)),
        ("12", StopAt("", 12)),
    ],
)
def test_a_location_is_read_and_written_alike(text, meant):
    assert stop_at(text) == meant
    assert str(meant) == text


@pytest.mark.parametrize("text", ["", "a.py", "a.py:x", "a.py:0", "a.py:3#0", "findings"])
def test_what_is_no_location_is_refused_with_the_forms(text):
    with pytest.raises(MisuseError, match="FILE:LINE#N"):
        stop_at(text)


def test_a_file_is_known_by_the_end_of_its_path():
    wanted = stop_at("kernels/a.py:1")
    assert wanted.is_file("/home/kernels/a.py")
    assert not wanted.is_file("/home/other/a.py")
    assert not stop_at("a.py:1").is_file("/home/kernels/ba.py")


def test_the_nth_time_is_counted_for_each_program():
    stopper = Stopper(stop_at("a.py:5#2"))
    assert [stopper.counts(5, who) for who in ("rank 0", "rank 1", "rank 1")] == [False, False, True]


def test_variables_are_opened_to_arrays_by_name():
    @dataclass
    class State:
        total: float
        parts: list

    frames = [
        ("", {"x": np.arange(3), "s": State(2.0, [1, {"y": True}]), "huge": 1 << 80, "text": "no"}),
        ("f", {"x": 1}),
    ]
    arrays, _ = held_in(frames, lambda value: None)
    assert sorted(arrays) == ["f.x", "s.parts[0]", "s.parts[1]['y']", "s.total", "x"]
    assert arrays["s.total"] == 2.0


def test_named_tuples_keep_their_names():
    pair = namedtuple("pair", "m l")
    arrays, _ = held_in([("", {"state": pair(1, 2.0), "plain": (3,)})], lambda value: None)
    assert sorted(arrays) == ["plain[0]", "state.l", "state.m"]


def test_arrays_are_copies():
    x = np.zeros(2)
    arrays, _ = held_in([("", {"x": x})], lambda value: None)
    x[0] = 1
    assert not arrays["x"].any()


VISITED = """
def once(new):
    m = [new for _ in range(9)]
def nested(new):
    m = {a: [new for _ in range(a)] for a in {b for b in range(5)}}
def on_lines(new):
    m = [
        new
        for _ in range(9)
    ][0]
def value_below(new):
    m = (
        new
        + 1
    )
def looped(new):
    for step in range(3):
        m = [new for _ in range(9)][step]
def chosen(new):
    return [new for _ in range(9)] if new else None
"""


@pytest.mark.parametrize(
    ("name", "times"),
    [("once", 1), ("nested", 1), ("on_lines", 1), ("value_below", 1), ("looped", 3), ("chosen", 1)],
)
def test_a_comprehension_is_no_new_visit_of_its_line_on_any_python(name, times, tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(VISITED)
    names = {}
    exec(compile(VISITED, str(file), "exec"), names)
    line = VISITED.splitlines().index(f"def {name}(new):") + 2 + (name == "looped")
    stopper = Stopper(StopAt(str(file), line, 99))
    with stopper.watching(lambda: "rank 0", lambda value: None):
        names[name](1)
    assert stopper._times["rank 0"] == times
