"""Launches that are refused before they begin are in the verdict: programs pass over errors."""

import pytest

from kernbench.ptx.doors.driver.requests import Request, Result
from kernbench.ptx.doors.driver.service import DriverService
from kernbench.ptx.doors.summary import read_session

GRID, BLOCK = (1, 70000, 1), (128, 1, 1)


@pytest.fixture
def service(session_of, tmp_path):
    return DriverService(session_of(tmp_path))


def refuse(service, error, why, thread=7, name=b"_Z3addPf", by_driver=0):
    return service.answer(Request.REFUSED, (error, thread, by_driver, *GRID, *BLOCK), name + b"\0" + why)


def test_a_refused_launch_has_the_kernels_name_and_the_reason(service, tmp_path):
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


def test_of_a_launch_that_no_gpu_runs_a_program_may_ask_the_error(service, tmp_path):
    """Whether a kernel fits is tried by launching it; what only the emulator refuses is no such question."""
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
