"""The matrix library uses one thread while a launch runs, and as many as before afterwards."""

import numpy as np
import pytest

from kernbench.safety import jobs


class Library:
    """One of the libraries that the controller has found."""

    def __init__(self, user_api, threads):
        self.user_api, self.num_threads = user_api, threads


class Controller:
    """Notes what is limited."""

    def __init__(self, *libraries):
        self.lib_controllers, self.limited = libraries, []

    def limit(self, **how):
        self.limited.append(how)
        return jobs.nullcontext()


@pytest.mark.parametrize(
    ("libraries", "is_limited"),
    [
        ([("blas", 1), ("openmp", 8)], False),
        ([("blas", 1), ("blas", 2)], True),
        ([("blas", 4)], True),
        ([], False),
    ],
)
def test_only_what_uses_several_threads_is_limited(libraries, is_limited, monkeypatch):
    controller = Controller(*(Library(*one) for one in libraries))
    monkeypatch.setattr(jobs, "_libraries", lambda: controller)
    with jobs.one_thread():
        pass
    assert controller.limited == [{"limits": 1, "user_api": "blas"}] * is_limited


def test_the_library_has_one_thread_inside_and_those_of_before_afterwards():
    threadpoolctl = pytest.importorskip("threadpoolctl")
    np.ones((2, 2)) @ np.ones((2, 2))

    def threads():
        return {
            one.num_threads for one in threadpoolctl.ThreadpoolController().lib_controllers if one.user_api == "blas"
        }

    before = threads()
    with threadpoolctl.threadpool_limits(2, "blas"):
        during = threads()
        with jobs.one_thread():
            assert threads() <= {1}
            with jobs.one_thread():
                assert threads() <= {1}
            assert threads() <= {1}
        assert threads() == during
    assert threads() == before
