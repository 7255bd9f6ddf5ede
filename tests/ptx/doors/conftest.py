import pytest

from kernbench.common.errors import MisuseError
from kernbench.ptx.doors.memory import process_memory
from kernbench.ptx.doors.options import options_from
from kernbench.ptx.doors.session import Session


@pytest.fixture(autouse=True)
def _addresses():
    """Systems that do not give a process the addresses of the device's memory cannot run other people's programs."""
    try:
        process_memory()
    except MisuseError as problem:
        pytest.skip(str(problem))


@pytest.fixture
def session_of():
    """Sessions by their options, closed at the end of the test, with what they allocated."""
    made = []

    def make(folder=None, **options) -> Session:
        made.append(Session(options_from(options), folder=folder))
        return made[-1]

    yield make
    for session in made:
        session.close()
