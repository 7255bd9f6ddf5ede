"""Benches on several processes: outputs, findings and counts of every launch are those of one core."""

import pytest
from benchmarks.ptx_jobs import differences

from kernbench.bench import find, run_bench
from kernbench.ptx.devices.device import EmulatedDevice
from kernbench.ptx.devices.host import Host
from kernbench.ptx.emulator.engine import launch as launching
from kernbench.ptx.emulator.engine import splitting
from kernbench.ptx.target import PtxTarget

ATTENTION = find("batched_incremental_attention")
CHUNKS = find("gated_delta_rule_chunk_output")
SMALL = {"lengths": (70, 0, 64, 1), "heads": 1, "value_heads": 2}
CASES = [(ATTENTION, "multi_warp", {}), (ATTENTION, "split_kv", {}), (CHUNKS, None, {"kernel": "sm_90a", **SMALL})]


@pytest.mark.parametrize(("bench", "panel", "settings"), CASES, ids=lambda value: str(getattr(value, "name", value)))
def test_every_launch_of_a_bench_is_the_same(bench, panel, settings, monkeypatch):
    monkeypatch.setattr(splitting, "WORTH", 0.0)
    monkeypatch.setattr(splitting, "FEWEST_THREADS", 64)
    monkeypatch.setattr(launching, "_LANES", 512)
    # a recorded launch runs on one core
    monkeypatch.setattr(PtxTarget, "record_for_time", lambda self, host: None)
    found, divided = {}, []
    perform, launch = EmulatedDevice._perform, Host.launch

    def performed(device, *given, **more):
        run = perform(device, *given, **more)
        divided.append(device.division.parts)
        return run

    def launched(host, *given, **more):
        run = launch(host, *given, **more)
        found[jobs].append(run)
        return run

    monkeypatch.setattr(EmulatedDevice, "_perform", performed)
    monkeypatch.setattr(Host, "launch", launched)
    for jobs in ("1", "3"):
        splitting.forget()
        found[jobs] = []
        monkeypatch.setenv("KERNBENCH_JOBS", jobs)
        run_bench(bench, panel, settings)
    assert len(found["1"]) == len(found["3"]) > 0
    assert [differences(*pair) for pair in zip(found["1"], found["3"], strict=True)] == [[]] * len(found["1"])
    assert max(divided) > 1
