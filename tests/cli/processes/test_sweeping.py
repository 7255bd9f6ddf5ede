"""How long a sweep will take: from the pace at which points come, and not from what was before the first."""

import pytest

from kernbench.cli.processes.sweeping import Pace, _span


def test_what_was_before_the_first_point_does_not_count():
    """A hundred seconds of start, then two points a second."""
    pace = Pace()
    pace.note(0, 0.0)
    pace.note(1, 100.0)
    assert (pace.seconds, pace.takes(10)) == (0.0, 0.0)
    for second in range(1, 6):
        pace.note(0, 100.0 + second)
        pace.note(2, 100.0 + second)
    assert pace.seconds == 5.0
    assert pace.takes(1_000_000) == 500_000.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "less than a second"),
        (90, "about 90 s"),
        (7200, "about 2 hours"),
        (3e5, "about 3 days"),
        (1e11, "3,169 years"),
    ],
)
def test_stretches_of_time_as_people_say_them(seconds, text):
    assert text in _span(seconds)
