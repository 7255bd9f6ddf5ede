"""Kernels of one name are told apart: what is checked, timed, refused and reported of one says nothing of another."""

import json

import pytest
from tests.ptx.doors.kernels import ADD_ONE, word

from kernbench.ptx.doors import forecast
from kernbench.ptx.doors.forecast import LaunchRefusedError
from kernbench.ptx.doors.identity import KernelIdentity, identity_of, labels
from kernbench.ptx.doors.session import Notes
from kernbench.ptx.doors.summary import read_session
from kernbench.ptx.text.parser import parse

ONE, TWO = KernelIdentity("k", "/a/one.py", 3, "11aa" * 4), KernelIdentity("k", "/a/two.py", 3, "22bb" * 4)
AGAIN = KernelIdentity("k", "/a/one.py", 3, "33cc" * 4)
ELSEWHERE, OTHER = KernelIdentity("k", "/b/one.py", 3), KernelIdentity("softmax<float>", "/a/one.py", 3)
# the same name, and one element more than there is
WRONG = ADD_ONE.replace("[%rd4]", "[%rd4+4]")
# y[i] = x[i] + 1 after as many turns of a loop as a number says that is in the code, or that is passed
TURNS = ADD_ONE.replace("    ld.global.u32 %r6, [%rd4];", """    mov.u32 %r8, TURNS;
LOOP:
    ld.global.u32 %r6, [%rd4];
    sub.u32 %r8, %r8, 1;
    setp.ne.u32 %p2, %r8, 0;
    @%p2 bra LOOP;""")  # fmt: skip


def launch(session, text, n=64, **more):
    x, y = session.memory.allocate(256, "x", written=True), session.memory.allocate(256, "y")
    kernel = session.load(text).kernel("add_one")
    return session.launch(kernel, 2, 64, [word(x), word(y), word(n, 4)], **more)


@pytest.mark.parametrize(
    ("pattern", "kernels"),
    [
        ("k", [ONE, TWO, AGAIN, ELSEWHERE]),
        ("k@two.py", [TWO]),
        ("@one.py:3", [ONE, AGAIN, ELSEWHERE, OTHER]),
        ("@b/one.py:3", [ELSEWHERE]),
        ("@/a/*", [ONE, TWO, AGAIN, OTHER]),
        ("k@one.py:4", []),
        ("@ne.py", []),
        ("k@one.py:3#33cc33", [AGAIN]),
        ("k#11aa11", [ONE]),
        # a folder's name is no kernel's, and a kernel's own name comes first
        ("a", [OTHER]),
        ("soft*", [OTHER]),
        ("b", []),
    ],
)
def test_options_choose_kernels_by_name_and_source(pattern, kernels):
    assert [one for one in (ONE, TWO, AGAIN, ELSEWHERE, OTHER) if one.matches(pattern)] == kernels


def test_kernels_of_one_name_are_called_by_what_tells_them_apart():
    assert set(labels([ONE, OTHER]).values()) == {"k", "softmax<float>"}
    assert list(labels([ONE, TWO]).values()) == ["k@one.py:3", "k@two.py:3"]
    named = labels([ONE, TWO, AGAIN, ELSEWHERE, OTHER, KernelIdentity("k", content="44dd" * 4)])
    assert list(named.values()) == [
        "k@a/one.py:3#11aa11", "k@two.py:3", "k@a/one.py:3#33cc33", "k@b/one.py:3", "k#44dd44", "softmax<float>",
    ]  # fmt: skip
    # what is shown is what chooses the kernel
    assert all(kernel.matches(name) for kernel, name in named.items())


def test_a_kernel_of_ptx_is_known_by_its_source_or_by_its_code(tmp_path):
    (tmp_path / "k.cu").write_text("\n" * 9)
    lined = ADD_ONE.replace(".visible", f'.file 1 "{tmp_path / "k.cu"}"\n.visible').replace(
        "    mov.u32 %r2", "    .loc 1 7 0\n    mov.u32 %r2"
    )
    moved = lined.replace("    mov.u32 %r4", "    .loc 1 5 0\n    mov.u32 %r4")

    def of(text):
        return identity_of(parse(text).kernels["add_one"], "add_one")

    assert (of(lined).file, of(lined).line, of(moved).line) == (str(tmp_path / "k.cu"), 7, 5)
    # compiled in another way it is the same kernel, and after the file was written again another one
    assert of(lined) == of(lined.replace("add.s32 %r7, %r6, 1", "add.s32 %r7, %r6, 2"))
    before = of(lined)
    (tmp_path / "k.cu").write_text("\n" * 8)
    assert of(lined) != before
    assert of(ADD_ONE) == of(ADD_ONE) != of(WRONG)


@pytest.mark.parametrize("given", [False, True], ids=["by its code", "as the front end says"])
def test_the_first_launch_of_each_kernel_is_checked_whatever_its_name(session_of, tmp_path, given):
    session = session_of(folder=tmp_path, first=1)
    for text, kernel in ((ADD_ONE, ONE), (ADD_ONE, ONE), (WRONG, TWO), (WRONG, TWO)):
        launch(session, text, **({"notes": Notes(identity=kernel)} if given else {}))
    assert [one.treatment for one in session.launches] == ["checked", "unchecked"] * 2
    right, wrong = read_session(tmp_path).kernels
    assert (right.verdict, wrong.verdict) == ("none", "out-of-bounds")
    assert right.title != wrong.title
    assert {one.identity.title for one in (right, wrong)} == {"k" if given else "add_one"}
    # the records say which kernel it is
    for record in map(json.loads, next(tmp_path.glob("*.jsonl")).read_text().splitlines()):
        assert record["content"]
        assert (record["source"] is not None) == given


def test_only_one_of_two_kernels_of_a_name_is_checked(session_of):
    session = session_of(only=["k@two.py"])
    for kernel in (ONE, TWO):
        launch(session, ADD_ONE, notes=Notes(identity=kernel))
    assert [one.treatment for one in session.launches] == ["unchecked", "checked"]


def test_a_refused_launch_of_which_only_the_name_is_known_is_of_the_only_kernel_of_that_name(session_of, tmp_path):
    session = session_of(folder=tmp_path)
    launch(session, ADD_ONE)
    session.accept_refusal(session.refuse("add_one", "too many"))
    (kernel,) = read_session(tmp_path).kernels
    assert (len(kernel.launches), kernel.ok, kernel.title) == (2, True, "add_one")
    launch(session, WRONG)
    assert [len(one.launches) for one in read_session(tmp_path).kernels] == [1, 1, 1]


def test_each_code_and_each_number_passed_has_its_own_time(session_of):
    session = session_of(time=True)
    short, long = (TURNS.replace("TURNS", str(turns)) for turns in (2, 40))
    passed = TURNS.replace("TURNS", "%r1")
    times = [launch(session, *given).predicted for given in ((short,), (long,), (short,), (passed, 2), (passed, 60))]
    assert [time["timed_launch"] for time in times] == [1, 2, 1, 4, 5]
    ps = [time["time_ps"] for time in times]
    assert ps[0] == ps[2] < ps[1]
    assert ps[3] < ps[4]
    # what a program asks for is the time of what it launched
    assert (session.time_since(0, 1), session.time_since(1, 2)) == (ps[0], ps[1])


def test_a_kernel_that_would_take_too_long_says_nothing_of_another_one(session_of, monkeypatch):
    session = session_of(max_seconds=60)
    x, y = session.memory.allocate(256, "x", written=True), session.memory.allocate(256, "y")
    given = 2560, 64, [word(x), word(y), word(64, 4)]
    seconds = iter(range(0, 100_000, 100))
    monkeypatch.setattr(forecast, "clock", lambda: next(seconds))
    with pytest.raises(LaunchRefusedError):
        session.launch(session.load(WRONG).kernel("add_one"), *given)
    seconds = iter(range(100_000))
    assert session.launch(session.load(ADD_ONE).kernel("add_one"), *given).whole
