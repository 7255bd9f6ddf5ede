"""Every cause of a gap is explained, whichever target names it."""

import pytest

from kernbench.mesh.time.gap import CAUSES
from kernbench.npu.time.causes import BEYOND, FLOORS, WORKS, waiting
from kernbench.report.causes import explain, explained


@pytest.mark.parametrize("cause", [*CAUSES, *BEYOND, *(f"{FLOORS[0]} {waiting(work)}" for work in WORKS)])
def test_every_cause_has_a_sentence(cause):
    assert explain(cause).endswith(".")


def test_the_resource_that_waits_is_named():
    assert explain("aic MTE2 waits for memory").startswith("aic MTE2 was idle while")
    assert explain("memory waits for luck") == explain("luck") == ""


def test_a_run_has_its_floor_and_causes_explained():
    told = explained({"bound": "hbm", "gap_ps": {"dispatch": 3, "strange": 1}})
    assert list(told) == ["hbm floor", "dispatch", "strange"]
    assert told["hbm floor"].endswith("peak rate of hbm.")
    assert explained({}) == explained({"gap_ps": [1]})
