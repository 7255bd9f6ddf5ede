"""Every cause of a gap is explained, by the target that names it."""

import pytest

from kernbench.report.time.causes import explained
from kernbench.result.run import Run, Status
from kernbench.targets import registry

NPU, MESH = registry.find("npu"), registry.find("mesh")
CAUSES = [("mesh", cause) for cause in MESH.measured().causes]
# reports name the resource that waits
CAUSES += [("npu", f"cube {cause}" if cause.startswith("waits") else cause) for cause in NPU.measured().causes]


@pytest.mark.parametrize(("target", "cause"), CAUSES)
def test_every_cause_has_a_sentence(target, cause):
    assert registry.find(target).explain(cause).endswith(".")


def test_the_resource_that_waits_is_named():
    assert NPU.explain("aic MTE2 waits for memory").startswith("aic MTE2 was idle while")
    assert NPU.explain("memory waits for luck") == NPU.explain("luck") == MESH.explain("luck") == ""


def run_with(metrics):
    return Run({}, [], (), Status.FINISHED, metrics=metrics, origin={"target": "mesh"})


def test_a_run_has_its_floor_and_causes_explained():
    told = explained(run_with({"bound": "hbm", "gap_ps": {"dispatch": 3, "strange": 1}}))
    assert list(told) == ["hbm floor", "dispatch", "strange"]
    assert told["hbm floor"].endswith("peak rate of hbm.")
    assert told["dispatch"].startswith("It waited for commands")
    assert explained(run_with({})) == explained(run_with({"gap_ps": [1]}))
