"""The bench of the chunk output: every panel of every kernel, and settings that cannot be."""

from dataclasses import replace

import pytest
from tests import sampled

from kernbench.bench import ShapesOnly, find, parameters_of, run_bench
from kernbench.common.errors import BenchError, KernbenchError

BENCH = find("gated_delta_rule_chunk_output")


TARGETS = ["sm_90a", "sm_100a"]
JOBS = ["whole_chunks", "ragged", "padded", "keys_64", "values_64"]


def test_there_are_no_other_panels():
    assert list(BENCH.panels) == [f"{target}_{job}" for target in TARGETS for job in JOBS]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("target", TARGETS)
def test_every_panel_is_right_and_safe(target, job):
    # one head does what all of them do, and tests of the kernels share one among two; two whole chunks or some broken
    # ones do what more of them do. --full runs panels as they are
    lengths = (128,) if job == "whole_chunks" else (70, 0, 64, 1)
    small = {"heads": 1, "value_heads": 1, "lengths": lengths}
    run = run_bench(BENCH, f"{target}_{job}", {} if sampled.full() else small)
    assert run.right, run.comparison[0].reason
    assert run.safe, "\n".join(map(str, run.findings))


def test_sizes_keep_the_kind_of_a_panel():
    whole, ragged = (parameters_of(BENCH, f"sm_90a_{job}", size="4096") for job in ("whole_chunks", "ragged"))
    assert whole.lengths == (4096,)
    assert sum(ragged.lengths) == 4096
    assert len(ragged.lengths) == 5
    assert whole.grid == (132, 1)
    assert replace(whole, flat=False).grid == (4, 32)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lengths": (0, 0)}, "at least one sequence has rows"),
        ({"heads": 3}, "4 value heads for 3 heads"),
        ({"key_size": 100}, "key_size = 100: heads are multiples of 64 up to 256"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(KernbenchError, match=message):
        run_bench(BENCH, None, settings)


def test_it_runs_on_data():
    with pytest.raises(BenchError, match="leave --shapes-only away"):
        BENCH.inputs(parameters_of(BENCH), ShapesOnly())
