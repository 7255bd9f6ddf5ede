"""The tasks of the critical path in words."""

from io import StringIO

from rich.console import Console

from kernbench.bench import find, run_bench
from kernbench.report import tasks_text
from kernbench.result.run import Run, Status


def text_of(run):
    console = Console(width=160, record=True, file=StringIO())
    console.print(tasks_text(run))
    return console.export_text()


def test_each_task_of_the_path_says_why_it_started_only_then():
    settings = {"form": "staged", "chip.tasks.window": 4, "chip.memory.latency": 800}
    run = run_bench(find("paged_attention"), "contexts_33_17", settings, timed=True)
    text = text_of(run)
    assert "tasks on the critical path: 12 of 14" in text
    assert "dependence: needs what qk (1) writes" in text
    assert "ring full: its ring was full until softmax (2) was reclaimed" in text
    assert "submit: the orchestrator had submitted it only then" in text
    assert sum(row["on_path_ps"] for row in run.views["tasks"]) == run.metrics["time_ps"]


def test_a_run_without_tasks_has_no_table():
    assert tasks_text(Run({}, [], (), Status.FINISHED, None)) is None
