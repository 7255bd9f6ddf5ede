"""What tests of programs that are recorded without running all of them share."""

import pytest

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
