"""Sweeps: which points share a functional pass, that times are those of single runs, resuming, files, anomalies."""

from dataclasses import make_dataclass, replace

import pytest

from kernbench.bench import find, run_bench
from kernbench.common.errors import BenchError, MachineError
from kernbench.report.export.plot import plot_sweep
from kernbench.sweep import Collected, Here, Processes, Store, anomalies, in_order, make_plan, run_sweep
from kernbench.sweep.columns import columns
from kernbench.sweep.export import write_parquet
from kernbench.sweep.planning import points as points_module
from kernbench.sweep.planning.plan import parse_over
from kernbench.sweep.planning.supply import Supply

BENCH = find("milestone_gqa_llama70b")
SMALL = {"context": 24, "d_head": 16, "h_q": 4, "h_kv": 2}
OVER = {"machine.hbm.bandwidth": ["256", "512", "1 TB/s"], "n_ranks": ["2", "4"]}


def plan(over=None, panel="single_user_decode"):
    return make_plan(BENCH, panel, SMALL, over or OVER)


def rows_of(made, executor=None):
    ledger = Collected(made)
    run_sweep(made, executor or Here(), ledger)
    return ledger.rows


def test_points_that_differ_only_in_rates_share_a_pass(monkeypatch):
    made = plan()
    assert (made.points, made.passes, made.in_group()) == (6, 2, 3)
    passes = []
    original = points_module.run_bench
    monkeypatch.setattr(points_module, "run_bench", lambda *a, **k: passes.append(a) or original(*a, **k))
    assert len(rows_of(made)) == 6
    assert len(passes) == 2


def test_shape_keys_need_a_pass_of_their_own():
    made = plan({"machine.ipcq.depth": ["2", "4"], "machine.link.latency": ["10 ns", "20 ns"]})
    assert made.passes == 2


def test_times_are_those_of_single_runs():
    for row in rows_of(plan()):
        settings = {**SMALL, "n_ranks": row["n_ranks"], "machine.hbm.bandwidth": row["machine.hbm.bandwidth"]}
        single = run_bench(BENCH, "single_user_decode", settings, timed=True)
        assert row["time_ps"] == single.metrics["time_ps"]
        assert row["right"]
        assert row["safe"]


def test_several_processes_give_the_same_rows():
    assert in_order(plan(), rows_of(plan(), Processes(2))) == in_order(plan(), rows_of(plan()))


def parts_of(made, workers, size):
    """The parts that workers are given who ask in turn."""
    supply = Supply(made, lambda positions: positions)
    parts = {worker: [] for worker in range(workers)}
    while True:
        supply.size = size
        given = {worker: supply.take(worker) for worker in parts}
        for worker, part in given.items():
            parts[worker] += [part] if part else []
        if not any(given.values()):
            return parts


def test_a_worker_stays_with_its_group_and_helps_with_large_ones():
    made = plan({"machine.hbm.bandwidth": ["1..300"]})
    parts = parts_of(made, 2, 64)
    assert [[len(part.positions) for part in each] for each in parts.values()] == [[64, 64, 44], [64, 64]]
    made = plan({"machine.hbm.bandwidth": ["1..60"], "n_ranks": ["1", "2"]})
    parts = parts_of(made, 3, 16)
    assert [{part.group.settings["n_ranks"] for part in each} for each in parts.values()] == [{"1"}, {"2"}, set()]
    points = [position for each in parts.values() for part in each for position in part.positions]
    assert sorted(points) == [(rate, ranks) for rate in range(60) for ranks in range(2)]


def test_parts_take_about_half_a_second():
    supply = Supply(plan({"machine.hbm.bandwidth": ["1..300"]}), lambda positions: positions)
    for points, seconds, size in ((8, 4.0, 1), (8, 0.1, 40), (8, 1e-9, 512)):
        supply.learn(points, seconds)
        assert supply.size == size


def test_one_pass_serves_all_parts_of_a_group(monkeypatch):
    made = plan({"machine.hbm.bandwidth": ["1..130"], "n_ranks": ["1", "2"]})
    passes = []
    original = points_module.run_bench
    monkeypatch.setattr(points_module, "run_bench", lambda *a, **k: passes.append(a) or original(*a, **k))
    assert len(rows_of(made)) == 260
    assert len(passes) == 2


def test_rows_say_where_the_time_went():
    for row in rows_of(plan()):
        gap = {k: v for k, v in row.items() if k.startswith("gap_")}
        assert set(gap) <= set(columns("mesh"))
        assert sum(gap.values()) + row[f"floor_{row['bound']}_ps"] == row["time_ps"]


def test_unsafe_points_have_no_time():
    rows = rows_of(plan({"machine.ipcq.depth": ["1", "2"]}, "single_user_prefill"))
    assert "time_ps" not in rows[0]
    assert rows[0]["safe"] is False
    assert rows[1]["time_ps"] > 0


def stored(folder, made, rows):
    """A store with made-up results, given as the values of the points and their times."""
    store = Store(folder / "s.sqlite", made)
    points = {tuple(made.point(position).values()): position for position in all_positions(made)}
    store.claim(list(points.values()))
    store.keep([(points[values], {"safe": True, "time_ps": time}) for values, time in rows.items()])
    return store


def all_positions(made):
    return [position for choice in made.choices() for position in made.positions(choice)]


def test_parquet_and_plot(tmp_path):
    import pyarrow.parquet as pq

    made = plan()
    with Store(tmp_path / "s.sqlite", made) as store:
        run_sweep(made, Here(), store)
        write_parquet(tmp_path / "s.parquet", store)
        rows = list(store.rows())
    table = pq.read_table(tmp_path / "s.parquet")
    assert table.num_rows == 6
    assert table["time_ps"].to_pylist() == [r["time_ps"] for r in rows]
    assert table["n_ranks"].to_pylist() == [2, 4] * 3
    rows.append({"machine.hbm.bandwidth": "512", "n_ranks": "8", "refused": "too many", "time_ps": None})
    for ending in ("png", "svg"):
        plot_sweep(tmp_path / f"s.{ending}", made.keys, "time_ps", rows)
        assert (tmp_path / f"s.{ending}").stat().st_size > 1000


@pytest.mark.parametrize(
    ("values", "times", "says"),
    [
        (["64", "128"], [10, 11], ["machine.link.bandwidth 64 -> 128 takes 10 -> 11 ps"]),
        (["64", "128"], [5, 5], []),
        # a point without a time is none
        (["64", "128", "256"], [10, None, 11], ["machine.link.bandwidth 64 -> 256 takes 10 -> 11 ps"]),
        # with their units
        (["512 GB/s", "1 TB/s", "1001"], [11, 10, 10], []),
        (["512 GB/s", "1 TB/s", "1001"], [9, 10, 10], ["machine.link.bandwidth 512 GB/s -> 1 TB/s takes 9 -> 10 ps"]),
    ],
)
def test_anomalies(tmp_path, values, times, says):
    made = plan({"machine.link.bandwidth": values})
    with stored(tmp_path, made, dict(zip(((v,) for v in values), times, strict=True))) as store:
        assert anomalies(store) == says


def test_many_anomalies_are_one_line(tmp_path):
    made = plan({"machine.link.bandwidth": ["1..11"], "n_ranks": ["2", "4"]})
    rows = {(str(rate), ranks): 100 + rate % 2 for rate in range(1, 12) for ranks in "24"} | {("7", "4"): 109}
    with stored(tmp_path, made, rows) as store:
        says = "10 of 20 steps to more machine.link.bandwidth take longer; at worst 6 -> 7 takes 100 -> 109 ps"
        assert anomalies(store) == [f"{says} at n_ranks=4"]


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
    with pytest.raises(MachineError, match="unknown gpu key"):
        make_plan(find("batched_incremental_attention"), None, {}, {"machine.link.latency": ["2"]})
    without = replace(BENCH, parameters=make_dataclass("Parameters", [("n_ranks", int, 2)], frozen=True))
    with pytest.raises(BenchError, match="has no machine to change"):
        make_plan(without, None, {}, {"machine.link.latency": ["2"]})
