"""What tests of programs that are recorded without running all of them share."""

import pytest

from kernbench.triton_emu.repeating.folding import Fold
from kernbench.triton_emu.repeating.template import Template


@pytest.fixture
def repeats(monkeypatch):
    """The commands of each call that was recorded without running it."""
    counts = []
    repeat = Template.repeat

    def counted(self, context, at):
        before = context.steps
        result = repeat(self, context, at)
        counts.append(context.steps - before)
        return result

    monkeypatch.setattr(Template, "repeat", counted)
    return counts


@pytest.fixture
def folds(monkeypatch):
    """How many iterations each fold has recorded."""
    times = []
    repeat = Fold.repeat

    def counted(self, now, count):
        times.append(count)
        repeat(self, now, count)

    monkeypatch.setattr(Fold, "repeat", counted)
    return times


@pytest.fixture(scope="module")
def short_loops():
    """Loops of five iterations fold, so that small kernels show what long ones do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernbench.triton_emu.repeating.loops.FEWEST", 5)
        yield


@pytest.fixture(scope="module")
def short_loops_inside(short_loops):
    """They fold inside other loops, too, and are computed without the kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernbench.triton_emu.repeating.loops.WORTH_COMPUTING", 0)
        yield
