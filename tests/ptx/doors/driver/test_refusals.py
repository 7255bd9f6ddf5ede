"""Launches that are refused before they begin are in the verdict: programs pass over errors."""

import itertools

import pytest

from kernbench.ptx.doors.driver.requests import Request, Result
from kernbench.ptx.doors.driver.service import DriverService
from kernbench.ptx.doors.options import CHECKED
from kernbench.ptx.doors.session import Launch
from kernbench.ptx.doors.summary import read_session
from kernbench.ptx.doors.terms.host_lines import line_of

GRID, BLOCK = (1, 70000, 1), (128, 1, 1)


@pytest.fixture
def service(session_of, tmp_path):
    return DriverService(session_of(tmp_path))


def refuse(service, error, why, thread=7, name=b"_Z3addPf", by_driver=0):
    return service.answer(Request.REFUSED, (error, thread, by_driver, *GRID, *BLOCK), name + b"\0" + why)


def test_a_refused_launch_has_the_kernels_name_and_the_reason(service, tmp_path, monkeypatch):
    # as in a program that runs no tests
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    refuse(service, Result.NO_BINARY_FOR_GPU, b"no PTX: compile with -gencode ...")
    refuse(service, Result.NO_BINARY_FOR_GPU, b"no PTX: compile with -gencode ...")
    (launch, _) = service.session.launches
    assert (launch.title, launch.status, launch.ok, launch.grid) == ("add", "refused", False, GRID)
    summary = read_session(tmp_path)
    assert summary.headline == "no findings, but 2 launches were refused"
    assert (summary.ok, summary.safe, summary.kernels[0].verdict) == (False, False, "refused")
    assert summary.kernels[0].errors == ["launch 1 and 1 more: refused: no PTX: compile with -gencode ..."]
    with pytest.raises(AssertionError, match="add"):
        service.session.assert_safe()


def test_a_kernel_that_no_ptx_has_is_explained(service):
    refuse(service, Result.INVALID_DEVICE_FUNCTION, b"")
    assert "compile with -gencode arch=compute_90a,code=compute_90a" in service.session.launches[0].error


def test_of_a_launch_that_no_gpu_runs_a_program_may_ask_the_error(service, tmp_path, monkeypatch):
    """Whether a kernel fits is tried by launching it; what only the emulator refuses is no such question."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    refuse(service, 9, b"its grid has 70000 in y: 1 to 65535 are allowed")
    refuse(service, Result.NO_BINARY_FOR_GPU, b"no PTX", name=b"other")
    refuse(service, 9, b"too many threads", thread=8, name=b"third")
    service.answer(Request.ERROR_SEEN, (7,), b"")
    assert [launch.ok for launch in service.session.launches] == [True, False, False]
    summary = read_session(tmp_path)
    assert [(kernel.title, kernel.ok) for kernel in summary.kernels] == [
        ("add", True),
        ("other", False),
        ("third", False),
    ]
    assert summary.kernels[0].errors == []
    assert summary.kernels[0].accepted == (
        "launch 1: refused, as by a GPU, and reported to the program: its grid has 70000 in y: 1 to 65535 are allowed"
    )


def test_python_that_calls_the_driver_itself_has_the_error_in_hand(service, tmp_path):
    """Front ends raise it; a kernel that is launched with <<<>>> inside of a library gives none back."""
    refuse(service, Result.INVALID_VALUE, b"too many threads", by_driver=1)
    refuse(service, Result.INVALID_VALUE, b"too many threads", by_driver=0, name=b"other")
    refuse(service, Result.NOT_SUPPORTED, b"textures", by_driver=1, name=b"third")
    assert [launch.ok for launch in service.session.launches] == [True, False, False]
    assert [kernel.ok for kernel in read_session(tmp_path).kernels] == [True, False, False]


def test_in_a_process_of_its_own_the_program_has_to_ask(session_of, tmp_path):
    service = DriverService(session_of(tmp_path), shared=True)
    refuse(service, Result.INVALID_VALUE, b"too many threads", by_driver=1)
    assert not service.session.launches[0].ok


def test_the_same_refusal_is_said_once(service):
    first, second = (refuse(service, Result.INVALID_VALUE, b"too many threads").data.decode() for _ in range(2))
    assert (first, second) == ("'add' is refused: too many threads", "")


def wrong_calls(service):
    """A copy beyond an allocation, a second free, and a fill of what was freed."""
    (address,) = service.answer(Request.ALLOCATE, (64, 1), b"").words
    copy = (address, 128, 128, 0x1000, 128, 128, 128, 1, 1, 0)
    answers = [service.answer(Request.COPY, copy, b"")]
    service.answer(Request.FREE, (address, 1), b"")
    answers += [service.answer(Request.FREE, (address, 1), b""), service.answer(Request.SET, (address, 8, 8, 1), b"")]
    return address, answers


HOST_MEMORY = 0x7FFF00001000
KINDS = {"device": 1, "pinned": 2, "managed": 3}


@pytest.mark.parametrize("to", ["device", "pinned", "managed", "host"])
@pytest.mark.parametrize("source", ["device", "pinned", "managed", "host"])
def test_a_copy_must_name_its_sides_as_what_they_are(session_of, tmp_path, to, source):
    """By what CUDA defines: pinned and managed memory may be either; who names nothing leaves it to the addresses."""
    service = DriverService(session_of(tmp_path), shared=True)
    addresses = {name: service.answer(Request.ALLOCATE, (64, kind), b"").words[0] for name, kind in KINDS.items()}
    addresses["host"] = HOST_MEMORY
    fits = {"device": (0, 2), "pinned": (0, 1, 2), "managed": (0, 1, 2), "host": (0, 1)}
    for to_named, from_named in itertools.product((0, 1, 2), repeat=2):
        words = (addresses[to], 64, 64, addresses[source], 64, 64, 64, 1, 1, to_named | from_named << 2)
        allowed = to_named in fits[to] and from_named in fits[source]
        answer = service.answer(Request.COPY, words, b"")
        assert (answer.result == Result.SUCCESS) == allowed, (to, source, to_named, from_named)


def test_a_python_program_may_have_device_memory_that_the_driver_does_not_know(service):
    """Tensors of torch, say; what the driver gave itself is known, and is not memory of the host."""
    (address,) = service.answer(Request.ALLOCATE, (64, 1), b"").words
    copies = [(address, HOST_MEMORY, 2 | 2 << 2), (address, HOST_MEMORY, 1 | 1 << 2)]
    answers = [
        service.answer(Request.COPY, (to, 64, 64, source, 64, 64, 64, 1, 1, named), b"") for to, source, named in copies
    ]
    assert [answer.result for answer in answers] == [Result.SUCCESS, Result.INVALID_VALUE]
    text = answers[1].data.decode()
    assert text.startswith(f"the copy names its destination, {address:#x}, as memory of the host, and it lies in alloc")


def test_wrong_calls_on_memory_are_in_the_verdict(session_of, tmp_path):
    """CUDA's codes are passed over as errors of launches are; a program that is no Python has nothing else."""
    address, answers = wrong_calls(DriverService(session_of(tmp_path), shared=True))
    assert [answer.result for answer in answers] == [Result.INVALID_VALUE] * 3
    summary = read_session(tmp_path)
    (host,), at = summary.kernels, hex(address)
    assert [(finding.kind, finding.message) for finding in host.findings] == [
        ("out-of-bounds", f"a copy or fill of 128 bytes at {at} begins 0 bytes into allocation 1, which has 64"),
        ("misuse", f"the memory at {at} is freed for the second time"),
        ("use-after-free", f"a copy or fill of 8 bytes at {at} lies in allocation 1, which was freed"),
    ]
    assert (summary.safe, summary.headline, host.verdict) == (
        False,
        "3 findings",
        "out-of-bounds, misuse, use-after-free",
    )
    # it is no kernel that --only could choose
    assert summary.identities == []
    assert host.run("sm_90a").findings == host.findings


def test_wrong_calls_are_the_programs_own_affair_where_it_asks(session_of, tmp_path):
    """By the thread that asks: of another one nothing is known."""
    service = DriverService(session_of(tmp_path), shared=True)
    _, answers = wrong_calls(service)
    for answer, thread in zip(answers, (7, 8, 7), strict=True):
        service.answer(Request.CALLER, (*answer.words, thread, 0, 0), b"")
    service.answer(Request.ERROR_SEEN, (7,), b"")
    (host,) = read_session(tmp_path).kernels
    assert [finding.kind for finding in host.findings] == ["misuse"]
    service.answer(Request.ERROR_SEEN, (8,), b"")
    summary = read_session(tmp_path)
    assert (summary.kernels, summary.headline) == ([], "nothing was checked")


def test_what_is_no_program_has_no_lines(tmp_path):
    assert line_of(__file__, 0, 100) is None
    assert line_of(str(tmp_path / "missing"), 0, 100) is None


def test_in_python_wrong_calls_are_raised(service, tmp_path):
    _, answers = wrong_calls(service)
    assert [answer.result for answer in answers] == [Result.INVALID_VALUE] * 3
    assert read_session(tmp_path).kernels == []


def test_that_a_program_measured_time_is_in_the_verdict(service, tmp_path):
    assert service.answer(Request.TIMED, (0, 0), b"").words == (0,)
    summary = read_session(tmp_path)
    assert (summary.timed, summary.timed_by_prediction) == (1, 0)


def test_between_events_pass_the_launches_that_are_predicted(service, tmp_path):
    """The first takes what it takes alone, the next what it adds behind it; without any, nothing is known."""
    known = {"time_ps": 4000, "following_ps": {"stream": 2500, "graph": 2000, "dependent": 1500}}
    service.session.launches += [Launch(number, "k", "k", CHECKED, predicted=known) for number in (1, 2, 3)]
    service.session.launches.append(Launch(4, "k", "k", CHECKED, predicted={"no_time": "it was not safe"}))
    between = [(0, 1), (0, 3), (1, 3), (2, 2), (2, 4)]
    assert [service.answer(Request.TIMED, words, b"").words[0] for words in between] == [4000, 9000, 6500, 0, 0]
    summary = read_session(tmp_path)
    assert (summary.timed, summary.timed_by_prediction) == (5, 3)
