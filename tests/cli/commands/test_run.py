"""`kernbench run` of several panels: what is said of their times."""

from dataclasses import replace
from types import SimpleNamespace

import kernbench.cli.commands.run as command
from kernbench.bench import find, run_bench

SETTINGS = {"context": 24, "d_head": 16, "h_q": 4, "h_kv": 2, "n_ranks": 2}


def test_times_that_are_not_validated_are_named_with_their_panels(capsys):
    run = run_bench(find("milestone_gqa_llama70b"), "single_user_decode", SETTINGS, timed=True)
    held, unproven = (replace(run, metrics=run.metrics | {"caveat": one}) for one in ("", "not validated"))
    request = SimpleNamespace(bench=find("milestone_gqa_llama70b"), shapes_only=False)
    assert command._print_runs(request, [("first", held), ("second", unproven), ("third", unproven)])
    printed = " ".join(capsys.readouterr().out.split())
    assert "not validated, as no GPU of their kind was measured: second, third" in printed
    command._print_runs(request, [("first", held), ("second", held)])
    assert "validated" not in capsys.readouterr().out


def test_panels_say_where_their_time_goes_and_what_must_be_known_of_it(capsys):
    run = run_bench(find("milestone_gqa_llama70b"), "single_user_decode", SETTINGS, timed=True)
    parts = {"gemm": 700, "dma": 200, "math": 90, "dispatch": 10}
    known = {"time_ps": 1000, "critical_path_ps": parts, "caveat": "lower bound, without machine code"}
    request = SimpleNamespace(bench=find("milestone_gqa_llama70b"), shapes_only=False)
    runs = [("first", replace(run, metrics=run.metrics | known)), ("second", run)]
    assert command._print_runs(request, runs)
    printed = " ".join(capsys.readouterr().out.split())
    assert "first: gemm 70.0 %, dma 20.0 %, math 9.0 % second:" in printed
    assert "lower bounds, as waits for others are not timed: first" in printed
    assert "without machine code, and less sure: first" in printed
