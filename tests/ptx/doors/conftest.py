import pytest

from kernbench.ptx.doors.options import options_from
from kernbench.ptx.doors.session import Session


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
