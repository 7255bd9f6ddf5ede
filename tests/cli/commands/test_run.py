"""`kernbench run` of several panels: what is said of their times."""

from dataclasses import replace
from types import SimpleNamespace

import kernbench.cli.commands.run as command
from kernbench.bench import find, run_bench

SETTINGS = {"context": 24, "d_head": 16, "h_q": 4, "h_kv": 2, "n_ranks": 2}


def test_times_that_are_not_validated_are_named_with_their_panels(capsys):
    run = run_bench(find("milestone_gqa_llama70b"), "single_user_decode", SETTINGS, timed=True)
    held, unproven = (
        replace(run, metrics=run.metrics | {"predictions": one}) for one in ("validated", "not validated")
    )
    request = SimpleNamespace(bench=find("milestone_gqa_llama70b"), shapes_only=False)
    assert command._print_runs(request, [("first", held), ("second", unproven), ("third", unproven)])
    printed = " ".join(capsys.readouterr().out.split())
    assert "not validated, as no GPU of their kind was measured: second, third" in printed
    command._print_runs(request, [("first", held), ("second", held)])
    assert "validated" not in capsys.readouterr().out
