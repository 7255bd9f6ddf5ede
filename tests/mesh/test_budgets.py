"""Budgets follow the size of the work, and an endless kernel is stopped all the same."""

from dataclasses import dataclass

import numpy as np
import pytest

from kernbench import mesh
from kernbench.bench import Bench, param, run_bench
from kernbench.common.errors import MisuseError
from kernbench.mesh import budgets
from kernbench.result.run import Status
from kernbench.safety.budget import FOLLOWS_WORK, LEAST_STEPS, Budget


def repeats(x_ptr, count, *, tl):
    x = tl.load(x_ptr, shape=(4, 4))
    for _ in range(count):
        x = x + 1.0


def endless(x_ptr, *, tl):
    while True:
        tl.load(x_ptr, shape=(4, 4))


def host(shape=(4, 4), **options):
    made = mesh.Host("reference", ranks=1, shapes_only=True, **options)
    return made, made.shard(np.broadcast_to(np.float32(0), shape))


def finding(run):
    assert run.status is Status.OVER_BUDGET
    [found] = run.findings
    assert found.kind == "over-budget"
    return found


LEAST = Budget(steps=1000, source=FOLLOWS_WORK)


def test_a_kernel_of_announced_work_is_not_stopped_for_its_size():
    torch, x = host(budget=LEAST)
    torch.limit_ps = 10**7
    assert torch.launch(repeats, x, 4000).ok


def test_the_budget_is_what_a_pe_dispatches_in_four_times_the_limit():
    torch, x = host(budget=LEAST)
    torch.limit_ps = 10**7
    found = finding(torch.launch(endless, x))
    # 4 x 10 us at 8 cycles of 1 ns
    assert "dispatched 5,001 commands and had not returned (its budget is 5,000: what a PE" in found.message
    assert "in 4 times the 10 us that its bench gives as its limit" in found.message
    assert "--max-steps" in found.hint


def test_small_work_has_the_least_budget_and_says_so():
    torch, x = host(budget=LEAST)
    torch.limit_ps = 1
    found = finding(torch.launch(endless, x))
    assert "its budget is 1,000: the least that any program may dispatch" in found.message


def test_nobody_has_to_announce_a_million_commands():
    torch, _ = host()
    assert torch.budget.for_work(1, "", True).steps == LEAST_STEPS == 1_000_000


def test_without_an_announcement_the_tensors_say_how_large_the_work_is():
    torch, q = host((1 << 14, 1 << 10))
    k = torch.shard(np.broadcast_to(np.float32(0), (1 << 13, 1 << 10)))
    steps, source = budgets.from_tensors([q, k])
    # 2,048 and 1,024 tiles of 32 KiB
    assert steps == min(24 * (2048 * 1024 + 3072), budgets.MOST_STEPS)
    assert "pair of the 32 KiB tiles" in source
    assert budgets.from_tensors([])[0] == 0


@pytest.mark.parametrize("at", ["host", "launch"])
def test_a_budget_that_is_given_holds(at):
    given = Budget(steps=1000)
    torch, x = host(**({"budget": given} if at == "host" else {}))
    torch.limit_ps = 10**12
    found = finding(torch.launch(endless, x, **({"budget": given} if at == "launch" else {})))
    assert "(its budget is 1,000: given with the launch)" in found.message


def test_a_kernel_that_goes_on_dispatching_is_stopped_by_the_clock():
    torch, x = host()
    torch.budget = Budget(steps=10**9, total_seconds=0.2)
    found = finding(torch.launch(endless, x))
    assert "(the launch may take 0.2 s of computing)" in found.message
    assert "--max-total-seconds" in found.hint


def test_only_launches_without_data_have_a_clock_by_default():
    budget = Budget(source=FOLLOWS_WORK)
    assert budget.for_work(5, "", True) == budget
    assert budget.for_work(5, "", False).total_seconds < 1000
    with pytest.raises(MisuseError, match="in all 0"):
        Budget(total_seconds=0)


@dataclass(frozen=True)
class Parameters:
    machine: str = param("reference", "machine")


def test_a_bench_announces_its_work_by_its_limits():
    hosts = []

    def launch(p, x, *, torch):
        hosts.append(torch)
        return torch.launch(repeats, torch.shard(x["x"]), 3)

    bench = Bench(
        "announces",
        "has limits",
        Parameters,
        lambda p, rng: {"x": rng.standard_normal((4, 4)).astype(np.float32)},
        lambda p, x: {},
        lambda p, machine: mesh.Host(machine, ranks=1),
        launch,
        limits=lambda p, machine: {"compute": 7, "hbm": 9},
    )
    run_bench(bench)
    assert hosts[-1].limit_ps == 9
    run_bench(bench, budget={"steps": 77, "seconds": 5.0})
    assert hosts[-1].limit_ps is None
    assert (hosts[-1].budget.steps, hosts[-1].budget.source) == (77, "given with the launch")
    run_bench(bench, budget={"seconds": 5.0})
    assert hosts[-1].limit_ps == 9
