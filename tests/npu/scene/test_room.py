"""A test that asks for more memory than there is gets an error, and the message says how to cut it."""

import sys

import numpy as np
import pytest

from kernbench.common.errors import BenchError
from kernbench.npu.scene import sources
from kernbench.npu.scene.cases import Case
from kernbench.npu.scene.room import is_for_want_of_memory, within

needs_limits = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux counts private memory")
LARGE = 1 << 28


@needs_limits
def test_more_than_there_is_raises_and_less_does_not():
    with within(LARGE // 4):
        with pytest.raises(MemoryError):
            np.ones(LARGE, np.uint8)
        assert np.ones(1 << 10).all()
    assert np.ones(LARGE, np.uint8).nbytes == LARGE


@pytest.mark.parametrize("error", [MemoryError("no"), RuntimeError("can't allocate memory: you tried to allocate 9")])
def test_the_message_says_what_may_be_cut(tmp_path, error):
    case = Case(tmp_path / "test_it.py", object, "large", "a2a3", {"batch": 256, "dtype": "bfloat16"})

    def generate_args():
        raise error

    with pytest.raises(BenchError, match=r"needs more memory than .*cut it: --set NAME=VALUE \(batch\)"):
        sources.own(case, "generate_args", generate_args)


def test_other_errors_are_the_tests_own():
    assert not is_for_want_of_memory(ValueError("a shape"))
