"""Compiled loops are loaded once for all tests: the processes of a sweep are forks of this one."""

import pytest

from kernbench.bench import find, run_bench


@pytest.fixture(autouse=True, scope="session")
def compiled():
    """Time something small."""
    settings = {"context": 24, "d_head": 16, "h_q": 4, "h_kv": 2, "n_ranks": 2}
    run_bench(find("milestone_gqa_llama70b"), "single_user_decode", settings, timed=True)
