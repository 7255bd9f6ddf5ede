"""Work in several processes: everything comes back, whatever becomes of one of them."""

import os

import pytest

from kernbench.cli.processes.parallel import run_all


@pytest.fixture
def cores(monkeypatch):
    monkeypatch.setattr("kernbench.cli.processes.parallel.sys.platform", "linux")
    monkeypatch.setattr("kernbench.cli.processes.parallel.os.sched_getaffinity", lambda pid: {0, 1}, raising=False)


def test_all_results_come_back_with_their_tasks(cores):
    parent = os.getpid()
    found = dict(run_all(list(range(6)), lambda task: (task * task, os.getpid() != parent)))
    assert found == {n: (n * n, True) for n in range(6)}


@pytest.mark.parametrize("most", [1, None])
def test_one_task_or_one_process_at_a_time_runs_here(cores, most):
    tasks = [3, 4] if most == 1 else [3]
    found = list(run_all(tasks, lambda task: (task, os.getpid()), most))
    assert found == [(task, (task, os.getpid())) for task in tasks]


def test_a_process_that_dies_takes_nobody_with_it(cores):
    def work(task):
        if task == 2:
            os._exit(9)
        return task

    assert dict(run_all([0, 1, 2, 3], work)) == {0: 0, 1: 1, 2: None, 3: 3}


def test_what_the_work_raises_is_raised_here(cores):
    def work(task):
        raise ValueError(f"task {task}")

    with pytest.raises(ValueError, match="task"):
        list(run_all([0, 1], work))
