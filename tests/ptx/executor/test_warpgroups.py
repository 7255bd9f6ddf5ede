"""wgmma by the executor: the bits, findings and counts of the emulator."""

import numpy as np
import pytest
from tests import sampled
from tests.ptx.emulator.asynchronous.test_wgmma import kernel, tiles
from tests.ptx.executor.warpgroup_programs import Kernel

from kernbench import ptx
from kernbench.ptx.executor import running

pytestmark = pytest.mark.fast_paths
SEEDS = range(3000 if sampled.full() else 60)


@pytest.fixture
def attempts(monkeypatch):
    found = []
    go = running._Run.go
    monkeypatch.setattr(running._Run, "go", lambda run: found.append(go(run)) or found[-1])
    return found


def outcome(run, *arrays):
    findings = [(finding.kind, finding.message, finding.count) for finding in [*run.findings, *run.formal]]
    # steps are of the way in which it ran
    return run.status, findings, {**run.metrics, "steps": 0}, [array.numpy().tolist() for array in arrays]


def launched(code, grid, threads, data, arguments, way, shared_bytes=0):
    device = ptx.EmulatedDevice("sm_90a", fast_paths=way)
    given, out = device.array(data), device.array(np.full(grid * threads * 32, 7, np.uint32))
    return outcome(device.launch(code, grid, threads, [given, out, *arguments], shared_bytes=shared_bytes), out)


KINDS = [
    ("f16", "f16", 16),
    ("bf16", "bf16", 16),
    ("tf32", "tf32", 8),
    ("e4m3", "e5m2", 32),
    ("e5m2", "e4m3", 32),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("mode", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("majors", ["KK", "KN", "MK", "MN"])
@pytest.mark.parametrize("n", [8, 64])
@pytest.mark.parametrize(("a_kind", "b_kind", "k"), KINDS)
def test_tiles_of_all_kinds_and_layouts(a_kind, b_kind, k, n, majors, mode, attempts):
    trans = (majors[0] == "M", majors[1] == "N") if k == 16 else (False, False)
    kinds = ("f32", a_kind, b_kind)
    _, _, data, descriptors = tiles(1, n, k, kinds, mode, mode, *trans)
    tail = f"1, -1, {int(trans[0])}, {int(trans[1])}" if k == 16 else "-1, 1"
    first = "\n".join(f"  mov.f32 %d{number}, 0f3FC00000;" for number in range(n // 2))
    adds = "  setp.eq.b32 %p2, 0, 0;\n{one}"
    code = kernel(n, kinds, k, tail=tail, first=first, multiply=adds)
    one, two = (launched(code, 1, 128, data, [len(data), *descriptors], way, len(data)) for way in ("all", "-executor"))
    assert attempts == [True]
    assert one == two
    assert not one[1]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_kernels(seed, attempts):
    made = Kernel(seed)
    data = np.random.default_rng(seed).integers(0, 0x3C, 16 * made.threads, dtype=np.uint8)
    code = ptx.parse(made.text).kernels["kernel"]
    one, two = (launched(code, 2, made.threads, data, [], way) for way in ("all", "-executor"))
    assert one == two
    assert not (attempts == [True] and two[1])


def test_some_random_kernels_are_run_and_some_are_not(attempts):
    for seed in range(24):
        made = Kernel(seed)
        data = np.zeros(16 * made.threads, np.uint8)
        launched(ptx.parse(made.text).kernels["kernel"], 1, made.threads, data, [], "all")
    assert {True, False} == set(attempts)


@pytest.mark.parametrize("adds", [False, True])
def test_accumulators_that_nobody_set_are_looked_at_where_they_are_added(adds, attempts):
    """Whether an operation adds to them is known when it runs; twice, of which the second one may add."""
    kinds = ("f32", "f16", "f16")
    _, _, data, descriptors = tiles(1, 8, 16, kinds, "none", "none")
    multiply = f"  setp.{'eq' if adds else 'ne'}.b32 %p2, 0, 0;\n{{one}}\n  setp.eq.b32 %p2, 0, 0;\n{{one}}"
    code = kernel(8, kinds, 16, tail="1, 1, 0, 0", multiply=multiply)
    one, two = (launched(code, 3, 128, data, [len(data), *descriptors], way, len(data)) for way in ("all", "-executor"))
    assert attempts == [not adds]
    assert one == two
    assert bool(one[1]) is adds
