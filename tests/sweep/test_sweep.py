"""Sweeps: which points share a functional pass, that times are those of single runs, resuming, files, anomalies."""

import csv

import pytest

from kernbench.bench import find, run_bench
from kernbench.common.errors import BenchError, MachineError
from kernbench.report.plot import plot_sweep
from kernbench.sweep import Here, Processes, anomalies, in_order, make_plan, run_sweep
from kernbench.sweep import points as points_module
from kernbench.sweep.executors.base import group_rows
from kernbench.sweep.plan import parse_over
from kernbench.sweep.store import COLUMNS, Store, write_parquet

BENCH = find("milestone_gqa_llama70b")
SMALL = {"context": 24, "d_head": 16, "h_q": 4, "h_kv": 2}
OVER = {"machine.hbm.bandwidth": ["256", "512", "1 TB/s"], "n_ranks": ["2", "4"]}


def plan(over=None, panel="single_user_decode"):
    return make_plan(BENCH, panel, SMALL, over or OVER)


def rows_of(made, executor=None, done=()):
    rows = []
    run_sweep(made, executor or Here(), set(done), rows.append)
    return rows


def test_points_that_differ_only_in_rates_share_a_pass(monkeypatch):
    made = plan()
    assert made.points == 6
    assert [len(g.rates) for g in made.groups] == [3, 3]
    passes = []
    original = points_module.run_bench
    monkeypatch.setattr(points_module, "run_bench", lambda *a, **k: passes.append(a) or original(*a, **k))
    assert len(rows_of(made)) == 6
    assert len(passes) == 2


def test_shape_keys_need_a_pass_of_their_own():
    made = plan({"machine.ipcq.depth": ["2", "4"], "machine.link.latency": ["10 ns", "20 ns"]})
    assert len(made.groups) == 2


def test_times_are_those_of_single_runs():
    for row in rows_of(plan()):
        settings = {**SMALL, "n_ranks": row["n_ranks"], "machine.hbm.bandwidth": row["machine.hbm.bandwidth"]}
        single = run_bench(BENCH, "single_user_decode", settings, timed=True)
        assert row["time_ps"] == single.metrics["time_ps"]
        assert row["right"]
        assert row["safe"]


def test_several_processes_give_the_same_rows():
    assert in_order(plan(), rows_of(plan(), Processes(2))) == in_order(plan(), rows_of(plan()))


def test_one_worker_needs_one_pass_and_several_share_a_large_group(monkeypatch):
    made = plan({"machine.hbm.bandwidth": [str(n) for n in range(1, 301)]})
    sizes = []

    class Counting(Here):
        def rows(self, plan, work):
            sizes.append([len(group.rates) for group in work])
            return iter(())

    for workers in (1, 2):
        monkeypatch.setattr(Counting, "workers", workers)
        rows_of(made, Counting())
    assert sizes == [[300], [64, 64, 64, 64, 44]]


def test_a_worker_does_one_pass_for_all_parts_of_a_group(monkeypatch):
    made = plan({"machine.hbm.bandwidth": [str(n) for n in range(1, 131)], "n_ranks": ["1", "2"]})
    passes = []
    original = points_module.run_bench
    monkeypatch.setattr(points_module, "run_bench", lambda *a, **k: passes.append(a) or original(*a, **k))

    class Elsewhere(Here):
        workers = 2

        def rows(self, plan, work):
            assert len(work) == 6
            for group in work:
                yield from group_rows(plan, group)

    rows = rows_of(made, Elsewhere())
    assert len(passes) == 2
    assert rows == rows_of(made)


def test_rows_say_where_the_time_went():
    for row in rows_of(plan()):
        gap = {k: v for k, v in row.items() if k.startswith("gap_")}
        assert set(gap) <= set(COLUMNS)
        assert sum(gap.values()) + row[f"floor_{row['bound']}_ps"] == row["time_ps"]


def test_unsafe_points_have_no_time():
    rows = rows_of(plan({"machine.ipcq.depth": ["1", "2"]}, "single_user_prefill"))
    assert "time_ps" not in rows[0]
    assert rows[0]["safe"] is False
    assert rows[1]["time_ps"] > 0


def test_a_stopped_sweep_goes_on(tmp_path):
    file, made = tmp_path / "s.csv", plan()
    store = Store(file, made)
    for row in rows_of(made)[:4]:
        store.add(row)
    with file.open("a") as stream:
        stream.write("1 TB/s,4,Tr")
    again = Store(file, made)
    assert len(again.done) == 4
    fresh = rows_of(made, done=again.done)
    assert len(fresh) == 2
    for row in fresh:
        again.add(row)
    with file.open(newline="") as stream:
        complete = [r for r in csv.DictReader(stream) if r["time_ps"]]
    assert len({(r["machine.hbm.bandwidth"], r["n_ranks"]) for r in complete}) == 6
    with pytest.raises(BenchError, match="holds another sweep"):
        Store(file, plan({"n_ranks": ["2"]}))


def test_parquet_and_plot(tmp_path):
    import pyarrow.parquet as pq

    made = plan()
    rows = rows_of(made)
    write_parquet(tmp_path / "s.parquet", rows)
    table = pq.read_table(tmp_path / "s.parquet")
    assert table.num_rows == 6
    assert table["time_ps"].to_pylist() == [r["time_ps"] for r in rows]
    rows.append({"machine.hbm.bandwidth": "512", "n_ranks": "8", "refused": "too many", "time_ps": ""})
    for ending in ("png", "svg"):
        plot_sweep(tmp_path / f"s.{ending}", made.keys, "time_ps", rows)
        assert (tmp_path / f"s.{ending}").stat().st_size > 1000


def test_anomalies_are_told():
    made = plan({"machine.link.bandwidth": ["64", "128"]})
    rows = [{"machine.link.bandwidth": "128", "time_ps": 11}, {"machine.link.bandwidth": "64", "time_ps": 10}]
    assert anomalies(made, rows) == ["machine.link.bandwidth 64 -> 128 takes 10 -> 11 ps"]
    assert anomalies(made, [{**r, "time_ps": 5} for r in rows]) == []


def test_a_point_without_a_time_is_no_anomaly():
    made = plan({"machine.link.bandwidth": ["64", "128", "256"]})
    times = {"64": "10", "128": "", "256": "11"}
    rows = [{"machine.link.bandwidth": value, "time_ps": time} for value, time in times.items()]
    assert anomalies(made, rows) == ["machine.link.bandwidth 64 -> 256 takes 10 -> 11 ps"]


def test_bandwidths_are_compared_with_their_units():
    made = plan({"machine.hbm.bandwidth": ["512 GB/s", "1 TB/s", "1000"]})
    times = {"512 GB/s": "11", "1 TB/s": "10", "1000": "10"}
    rows = [{"machine.hbm.bandwidth": value, "time_ps": time} for value, time in times.items()]
    assert anomalies(made, rows) == []
    rows[0]["time_ps"] = "9"
    assert anomalies(made, rows) == ["machine.hbm.bandwidth 512 GB/s -> 1 TB/s takes 9 -> 10 ps"]


def test_order_is_that_of_the_values():
    made = plan({"n_ranks": ["4", "2"], "machine.hbm.bandwidth": ["512", "256"]})
    points = [("2", "256"), ("4", "256"), ("2", "512"), ("4", "512")]
    rows = [dict(zip(made.keys, point, strict=True)) for point in points]
    assert [tuple(row.values()) for row in in_order(made, rows)] == [points[i] for i in (3, 1, 2, 0)]


@pytest.mark.parametrize(
    ("texts", "words"),
    [([], "at least one"), (["a"], "key=value"), (["a="], "key=value"), (["a=1", "a=2"], "twice")],
)
def test_bad_over(texts, words):
    with pytest.raises(BenchError, match=words):
        parse_over(texts)


def test_bad_plans():
    with pytest.raises(BenchError, match="both set and swept"):
        make_plan(BENCH, None, {"n_ranks": 2}, {"n_ranks": ["2"]})
    with pytest.raises(BenchError, match="unknown parameter"):
        make_plan(BENCH, None, {}, {"ranks": ["2"]})
    with pytest.raises(MachineError, match=r"hbm\.bandwidht"):
        make_plan(BENCH, None, {}, {"machine.hbm.bandwidht": ["2"]})
    with pytest.raises(BenchError, match="names 2 twice"):
        make_plan(BENCH, None, {}, {"n_ranks": ["2", "2"]})
    with pytest.raises(BenchError, match="unknown panel"):
        make_plan(BENCH, "decode", {}, {"n_ranks": ["2"]})
    with pytest.raises(BenchError, match="characters that no file"):
        make_plan(BENCH, None, {}, {"machine": ["a\nb"]})
    with pytest.raises(BenchError, match="has no machine to change"):
        make_plan(find("batched_incremental_attention"), None, {}, {"machine.link.latency": ["2"]})
    with pytest.raises(BenchError, match="more than"):
        make_plan(BENCH, None, {}, {"seed": ["1"] * 1000, "context": ["1"] * 1000})
