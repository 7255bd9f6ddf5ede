"""The golden on another core: the same verdict, errors and effects as after the launch."""

import os
import signal
from dataclasses import dataclass

import numpy as np
import pytest

from kernbench import mesh
from kernbench.bench import Bench, Expected, find, param, run_bench
from kernbench.bench.running import judging
from kernbench.common.errors import BenchError
from kernbench.result.finding import Finding, SourceLocation
from kernbench.targets import registry

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Every golden is worth a process."""
    monkeypatch.setattr(judging, "WORTH", 0)
    monkeypatch.setenv("KERNBENCH_START_METHOD", "fork")


@dataclass(frozen=True)
class Parameters:
    n: int = param(8, "elements", low=1)
    machine: str = param("small", "machine")


def bench_of(golden, launch=None):
    def inputs(p, rng):
        return {"x": rng.standard_normal(p.n).astype(np.float32)}

    def kernel(x, y, n, *, tl):
        tl.store(y, tl.load(x, shape=(n,), dtype="f32") * 2.0)

    def doubled(p, x, *, torch):
        y = torch.empty((p.n,), "f32", axis=0)
        return torch.launch(kernel, torch.shard(x["x"]), y, p.n)

    def host(p, machine):
        return mesh.Host(machine=machine, ranks=1)

    return Bench("doubled", "twice the input", Parameters, inputs, golden, host, launch or doubled)


def with_jobs(monkeypatch, bench, **options):
    """The runs with one process and with several."""
    found = []
    for jobs in ("1", "2", "16"):
        monkeypatch.setenv("KERNBENCH_JOBS", jobs)
        found.append(run_bench(bench, **options))
    return found


@pytest.mark.parametrize("panel", ["single_user_prefill", "multi_user_decode"])
def test_verdicts_are_the_same(panel, monkeypatch):
    settings = {"context": 64, "h_q": 8, "h_kv": 1, **({"lengths": ()} if "decode" in panel else {})}
    runs = with_jobs(monkeypatch, find("milestone_gqa_llama70b"), panel=panel, settings=settings, timed=True)
    assert runs[0].right
    for run in runs[1:]:
        assert repr(run.comparison) == repr(runs[0].comparison)
        assert run.metrics == runs[0].metrics
        assert all(np.array_equal(run.outputs[name], array) for name, array in runs[0].outputs.items())


def test_a_wrong_result_is_wrong(monkeypatch):
    runs = with_jobs(monkeypatch, bench_of(lambda p, x: {"y": x["x"] * 3.0}))
    assert [run.right for run in runs] == [False] * 3
    assert len({repr(run.comparison) for run in runs}) == 1


def test_the_process_is_used(monkeypatch):
    here = os.getpid()

    def golden(p, x):
        # what this process asks would be wrong
        return {"y": x["x"] * (3.0 if os.getpid() == here else 2.0)}

    assert [run.right for run in with_jobs(monkeypatch, bench_of(golden))] == [False, True, True]


def test_outputs_of_another_type_than_inputs(monkeypatch):
    """What was worked out ahead is for the type of the inputs, and of no use then."""

    def golden(p, x):
        return {"y": Expected((x["x"] * 2.0).astype(np.float64), reduction=3)}

    def launch(p, x, *, torch):
        y = torch.empty((p.n,), "f16", axis=0)

        def kernel(x, y, n, *, tl):
            tl.store(y, (tl.load(x, shape=(n,), dtype="f32") * 2.0).to("f16"))

        return torch.launch(kernel, torch.shard(x["x"]), y, p.n)

    runs = with_jobs(monkeypatch, bench_of(golden, launch))
    assert [run.right for run in runs] == [True] * 3
    assert [run.comparison[0].dtype for run in runs] == ["f16"] * 3
    assert len({repr(run.comparison) for run in runs}) == 1


def test_an_error_of_the_golden_is_at_its_line(monkeypatch):
    def golden(p, x):
        raise ValueError("no such thing")

    for jobs in ("1", "2"):
        monkeypatch.setenv("KERNBENCH_JOBS", jobs)
        with pytest.raises(
            BenchError, match=r"test_judging.py:\d+: golden of bench doubled raised ValueError: no such"
        ):
            run_bench(bench_of(golden))


def test_what_the_golden_does_besides_is_done_here(monkeypatch, capsys):
    asked = []

    def notes(p, x):
        asked.append(os.getpid())
        return {"y": x["x"] * 2.0}

    def prints(p, x):
        print("asked")
        return {"y": x["x"] * 2.0}

    assert all(run.right for run in with_jobs(monkeypatch, bench_of(notes)))
    assert asked == [os.getpid()] * 3
    assert all(run.right for run in with_jobs(monkeypatch, bench_of(prints)))
    assert capsys.readouterr().out == "asked\n" * 3


def test_a_launch_that_writes_into_its_inputs(monkeypatch):
    plain = bench_of(lambda p, x: {"y": x["x"] * 2.0})

    def launch(p, x, *, torch):
        run = plain.launch(p, x, torch=torch)
        x["x"] += 1.0
        return run

    runs = with_jobs(monkeypatch, bench_of(plain.golden, launch))
    assert [run.right for run in runs] == [False] * 3


def test_a_process_that_dies_is_no_loss(monkeypatch):
    here = os.getpid()

    def golden(p, x):
        if os.getpid() != here:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"y": x["x"] * 2.0}

    assert all(run.right for run in with_jobs(monkeypatch, bench_of(golden)))


def test_no_process_is_left(monkeypatch):
    begun, fork = [], os.fork

    def noted():
        begun.append(fork())
        return begun[-1]

    def launch(p, x, *, torch):
        raise ValueError("not launched")

    monkeypatch.setattr(os, "fork", noted)
    monkeypatch.setenv("KERNBENCH_JOBS", "2")
    with pytest.raises(BenchError, match="not launched"):
        run_bench(bench_of(lambda p, x: {"y": x["x"]}, launch))
    for process in begun:
        with pytest.raises(ChildProcessError):
            os.waitpid(process, os.WNOHANG)


@pytest.mark.parametrize("times", [2.0, 3.0])
def test_a_run_is_timed_while_it_is_compared(times, monkeypatch):
    asked, retime = [], registry.find("mesh").retime

    def noted(self, run, *given):
        asked.append(run.right)
        return retime(run, *given)

    monkeypatch.setattr(type(registry.find("mesh")), "retime", noted)
    runs = with_jobs(monkeypatch, bench_of(lambda p, x: {"y": x["x"] * times}), timed=True, second_order="never")
    assert asked == ([True, None, None] if times == 2.0 else [False, None, False, None, False])
    assert all(run.metrics == runs[0].metrics for run in runs)
    assert all((run.timeline is None) == (times == 3.0) for run in runs)
    assert ["no_time" in run.metrics for run in runs] == [times == 3.0] * 3
    assert all(run.origin["bench"] == "doubled" for run in runs)


def test_what_is_found_in_another_order_takes_the_time_away(monkeypatch):
    def later(self, *given):
        first = given[0]
        first.run.findings.append(Finding("race", "planted", SourceLocation("kernel.py", 1)))

    monkeypatch.setattr("kernbench.bench.running.runner._Repeat.compare", later)
    runs = with_jobs(monkeypatch, bench_of(lambda p, x: {"y": x["x"] * 2.0}), timed=True, second_order="always")
    assert [run.timeline for run in runs] == [None] * 3


def test_an_error_of_timing_is_that_of_one_process(monkeypatch):
    def raises(self, run, *given):
        raise BenchError("no such rate")

    monkeypatch.setattr(type(registry.find("mesh")), "retime", raises)
    for jobs in ("1", "2"):
        monkeypatch.setenv("KERNBENCH_JOBS", jobs)
        with pytest.raises(BenchError, match="no such rate"):
            run_bench(bench_of(lambda p, x: {"y": x["x"] * 2.0}), timed=True)
