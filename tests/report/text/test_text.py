"""Tables and findings as text: what a person reads, at any width."""

import pytest
from rich.console import Console

from kernbench.report import Contender, finding_text, ranking_table, ranking_text, run_text, runs_table
from kernbench.report.text.acknowledged import marks_text
from kernbench.result import Comparison, Finding, Other, RankError, Run, SourceLocation, Status

HERE = SourceLocation(__file__, 1, "kernel")


def text(renderable, width=160):
    console = Console(width=width, markup=False, highlight=False, force_terminal=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def wrong():
    ranks = (RankError(0, 0.0, 0.0, (0, 0), 0, 8), RankError(1, 1.5, 0.9, (3, 1), 5, 8))
    return Comparison(
        "o", "f16", False, 1.5, 2.0, 9.0, 0.9, (3, 1), 1, 1, 1.0, 2.5, 0.01, 5, 16, ranks, "5 of 16 out of tolerance"
    )


def test_a_finding_shows_kind_place_source_others_and_the_next_step():
    shown = text(
        finding_text(Finding("race", "two\nlines", HERE, (Other("the send", HERE),), "wait first", 3, (0, 1, 2)))
    )
    assert "test_text.py:1: race  ranks 0-2, 3 times" in shown
    assert '->     1 | """Tables and findings as text' in shown
    assert "the send: " in shown
    assert "next: wait first" in shown


def test_a_wrong_run_names_its_ranks():
    run = Run({}, [], ("deadlock",), Status.FINISHED, comparison=[wrong()])
    shown = text(run_text("mine", run))
    assert "right: NO" in shown
    assert "rank 1 wrong:" in shown
    assert "rank 1: 5 of 8 elements, furthest out of tolerance at [3, 1]; largest error 1.5" in shown
    assert "rank 0:" not in shown


def test_the_table_fits_a_narrow_terminal():
    metrics = {
        "commands": 1234,
        "time_ps": 2_500_000,
        "utilisation": {"gemm": 0.5, "math": 0.25, "dma": 0.1},
        "bound": "hbm",
        "floor_ratio": 1.5,
    }
    runs = [("single_user_prefill", Run({}, [], ("deadlock",), Status.FINISHED, metrics=metrics))]
    for width in (80, 100, 120, 160):
        shown = text(runs_table("title", runs, width), width)
        for word in ("single_user_prefill", "2.5 us", "none", "findings"):
            assert word in shown, width
        assert max(map(len, shown.splitlines())) <= width
    assert "50/25/10 %" in shown
    shown = text(runs_table("title", runs, 60), 60)
    assert [word for word in ("single_user_prefill", "not asked", "yes", "none") if word not in shown] == []


def test_columns_give_way_where_the_engines_have_long_names():
    engines = ("cube", "vector", "mte", "memory", "orchestrator")
    metrics = {"time_ps": 2_500_000, "utilisation": {}, "bound": "one task", "floor_ratio": 1.5, "engines": engines}
    run = Run({}, [], ("deadlock",), Status.FINISHED, comparison=[wrong()], metrics=metrics)
    runs = [("contexts_33_64_48_15", run)]
    for width, columns in (
        (125, {"engines"}),
        (135, {"engines", "rel. L2"}),
        (160, {"engines", "rel. L2", "commands"}),
    ):
        shown = text(runs_table("title", runs, width), width).replace("/".join(engines), "engines")
        assert "findings" in shown
        assert {name for name in ("engines", "rel. L2", "commands") if name in shown} == columns, width


def test_a_column_that_nothing_is_known_for_is_left_out():
    shown = text(runs_table("title", [("r", Run({}, [], ("race",), Status.FINISHED, metrics={"commands": 7}))]))
    assert "commands" in shown
    assert not any(name in shown for name in ("time", "bound", "x limit", "gemm", "rel. L2"))


def test_times_as_people_read_them():
    from kernbench.report.time.explanation import duration

    assert [duration(t) for t in (0, 999, 8_000, 2_500_000, 10**9, 3 * 10**12)] == [
        "0 ps", "999 ps", "8 ns", "2.5 us", "1 ms", "3 s",
    ]  # fmt: skip


def test_the_time_is_told_by_cause_and_against_the_peak():
    from kernbench.report.time.explanation import time_text

    metrics = {
        "time_ps": 2_000_000,
        "floors_ps": {"compute": 500_000, "hbm": 100},
        "bound": "compute",
        "gap_ps": {"imbalance": 0, "dispatch": 1_400_000, "queue stalls": 99_000, "HBM waits": 1_000},
        "critical_path_ps": {"gemm": 2_000_000},
        "rates": {
            "gemm": {"amount": 6_200_000, "achieved": 3.1e12, "peak": 65.536e12},
            "hbm": {"amount": 400, "achieved": 2e8, "peak": 512e9},
        },
        "load_bytes": 400,
        "store_bytes": 0,
        "send_bytes": 1_500_000,
    }
    shown = time_text(Run({}, [], ("deadlock",), Status.FINISHED, metrics=metrics)).plain
    assert "  time by cause: compute floor 25.0 %, dispatch 70.0 %, queue stalls 5.0 %\n" in shown
    assert "  achieved: gemm 3.1 of 65.5 TFLOP/s (4.7 %), hbm 0.2 of 512 GB/s (0.0 %)\n" in shown
    assert "  moved: 400 B loaded, 1.5 MB over links\n" in shown


def contender(name, time, **gap):
    metrics = {"time_ps": time, "bound": "exp", "floors_ps": {"exp": time - sum(gap.values())}, "gap_ps": gap}
    return Contender(name, f"what {name} does", Run({}, [], ("deadlock",), Status.FINISHED, metrics=metrics))


def test_algorithms_are_ranked_with_the_reason():
    plain = contender("plain", 5_000_000, imbalance=2_000_000, dispatch=2_000_000)
    even = contender("even", 3_500_000, imbalance=100_000, dispatch=2_400_000)
    absent = Contender("absent", "what absent does", None, "needs a grid")
    table = text(ranking_table("job", [plain, absent, even]))
    assert table.index("even") < table.index("plain") < table.index("absent")
    assert "1.43" in table
    assert "needs a grid" in table
    told = ranking_text([plain, absent, even], "plain").plain
    assert told == (
        "even wins: what even does\n"
        "  1.43 times as fast as plain, which spends more on imbalance 1.9 us and less on dispatch 400 ns\n"
    )
    assert "none has a time" in ranking_text([absent], "").plain


def test_quantities_as_people_read_them():
    from kernbench.report.time.explanation import scaled

    assert [scaled(n, "B") for n in (0, 1, 999, 1e3, 2.5e9, 3e18)] == [
        "0 B",
        "1 B",
        "999 B",
        "1 kB",
        "2.5 GB",
        "3e+03 PB",
    ]


@pytest.mark.parametrize(("file", "comment"), [("kernel.py", "# kernbench: "), ("kernel.cu", "// kernbench: ")])
def test_how_to_acknowledge_a_finding_can_be_pasted(file, comment):
    run = Run({}, [Finding("race", "two accesses", SourceLocation(file, 3, "kernel"))], ("race",), Status.FINISHED)
    (line,) = marks_text(run).plain.splitlines()[1:]
    assert line.strip().startswith(f"{comment}allow race ")
    assert line.endswith(" REASON")
