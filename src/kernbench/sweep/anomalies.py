"""Points where more bandwidth made a run slower, which is possible with shared resources."""

from functools import lru_cache

from kernbench.bench.definition.machines import machine_key
from kernbench.machine.units import parse
from kernbench.sweep.database import index_columns, quoted
from kernbench.sweep.store import Store

BANDWIDTH, BANDWIDTH_UNIT = ".bandwidth", "GB/s"


def anomalies(store: Store) -> list[str]:
    """One sentence for each bandwidth key that ever made a run slower: how often, and the worst case."""
    store.number("bandwidth", lru_cache(4096)(_rate))
    keys = store.plan.keys
    return [
        text for key in keys if machine_key(key) is not None and key.endswith(BANDWIDTH) for text in _of(store, key)
    ]


def _rate(text: str) -> float:
    return float(parse(text, BANDWIDTH_UNIT))


def _of(store: Store, key: str) -> list[str]:
    """Compare neighbours by bandwidth among points that differ in nothing else."""
    keys = store.plan.keys
    others = [at for at, other in zip(index_columns(keys), keys, strict=True) if other != key]
    value = quoted(key)
    line = f"ORDER BY bandwidth({value})"
    if others:
        line = f"PARTITION BY {', '.join(others)} {line}"
    names = ", ".join(map(quoted, keys))
    query = f"""
        WITH steps AS (
            SELECT {value} AS value, time_ps, bandwidth({value}) AS rate, {names},
                lag({value}) OVER line AS value_before, lag(time_ps) OVER line AS time_before,
                lag(bandwidth({value})) OVER line AS rate_before
            FROM points WHERE time_ps IS NOT NULL WINDOW line AS ({line}))
        SELECT count(*) OVER (), (SELECT count(*) FROM steps WHERE value_before IS NOT NULL),
            value_before, value, time_before, time_ps, {names}
        FROM steps WHERE time_ps > time_before AND rate > rate_before
        ORDER BY 1.0 * time_ps / max(time_before, 1) DESC LIMIT 1"""
    return [_sentence(key, keys, *found) for found in store.query(query)]


def _sentence(key: str, keys: tuple[str, ...], *found: object) -> str:
    slower, steps, before, value, time_before, time, *values = found
    where = ", ".join(f"{k}={v}" for k, v in zip(keys, values, strict=True) if k != key)
    times = f"{before} -> {value} takes {time_before} -> {time} ps{f' at {where}' if where else ''}"
    how_often = f"{slower:,} of {steps:,} steps to more {key} take longer"
    return f"{how_often}; at worst {times}" if slower != 1 else f"{key} {times}"
