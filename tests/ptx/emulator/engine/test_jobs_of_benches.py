"""Benches and mutants of their kernels on several processes: every launch gives what it gives on one core."""

import os

import pytest
from tests import sampled

from benchmarks import ptx_jobs_of_benches as benches

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.fast_paths,
]

SMALL = {"lengths": (70, 0, 64, 1), "heads": 1, "value_heads": 2, "sms": 6}
# two chunks for each block, so that pieces of one batch run alike
EVEN = {"lengths": (384,), "heads": 1, "value_heads": 2, "sms": 6}
PANELS = [
    benches.Case(benches.ATTENTION, "multi_warp"),
    benches.Case(benches.ATTENTION, "split_kv"),
    benches.Case(benches.CHUNKS, None, {**SMALL, "kernel": "sm_90a"}),
    benches.Case(benches.CHUNKS, None, {**EVEN, "kernel": "sm_90a"}, benches.USUAL),
]


@pytest.mark.parametrize("case", [*PANELS, *benches.panels()] if sampled.full() else PANELS[1:], ids=str)
def test_every_launch_of_a_panel_is_the_same(case):
    # more processes than there are blocks for: of one panel, with --full of all
    many = (2, 16) if sampled.full() or case == PANELS[2] else (2,)
    _, tally, wrong = benches.compare(many, case)
    assert wrong == []
    assert tally["found"] == 0
    if case in PANELS:
        # not all of them are divided: the merge of split_kv has few CTAs
        assert all(tally[f"divided on {count}"] > 0 for count in many)


def test_every_mutant_is_found_as_on_one_core():
    among = benches.MUTATED if sampled.full() else benches.MUTATED[:1]
    for case in benches.mutants(sampled.examples(120, 6), among):
        _, _, wrong = benches.compare((2,), case)
        assert wrong == []


def test_a_difference_is_seen(monkeypatch):
    """A planted fault: on several processes the counts are wrong."""
    from kernbench.ptx.emulator.program.meter import Meter

    admit = Meter.admit

    def too_many(meter, more):
        more.steps += 1
        return admit(meter, more)

    monkeypatch.setattr(Meter, "admit", too_many)
    _, _, wrong = benches.compare((2,), PANELS[0])
    assert len(wrong) == 1
    assert "metrics differ" in wrong[0]
