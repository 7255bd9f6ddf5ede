"""Rows of kernels beside their peers: no time of ours for a wrong result, and a peer that refuses says why."""

import json
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import pytest

from benchmarks.truth import peers


@pytest.fixture
def torch(monkeypatch):
    """torch with a clock of its own, as far as it is used here."""

    class Event:
        def __init__(self, enable_timing):
            pass

        def record(self):
            pass

        def elapsed_time(self, end):
            return 0.25

    made = ModuleType("torch")
    made.cuda = SimpleNamespace(Event=Event, synchronize=lambda: None, get_device_name=lambda index: "Pretend GPU")
    made.__version__ = "2.0"
    made.int32 = "int32"
    made.zeros = lambda *given, **how: SimpleNamespace(sum=lambda: 0, fill_=lambda value: None)
    attention = ModuleType("torch.nn.attention")
    attention.SDPBackend = SimpleNamespace(FLASH_ATTENTION="flash", CUDNN_ATTENTION="cuDNN")

    def sdpa_kernel(backend):
        if backend == "cuDNN":
            raise RuntimeError("no such heads\nand more")
        return nullcontext()

    attention.sdpa_kernel = sdpa_kernel
    for name, module in (("torch", made), ("torch.nn", ModuleType("torch.nn")), ("torch.nn.attention", attention)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(peers, "FlushedDevice", SimpleNamespace)
    return made


@pytest.mark.parametrize(("difference", "counts"), [(1e-3, True), (0.5, False)])
def test_a_time_counts_only_if_the_result_is_right(torch, tmp_path, monkeypatch, capsys, difference, counts):
    out = tmp_path / "rows.jsonl"
    monkeypatch.setattr(sys, "argv", ["peers", "--out", str(out), "--flush", "read"])

    def measured(torch, device, problem):
        row = {"ours_us": 8.0, "ours_in_turns_us": 9.0, "difference": difference}
        peers.add_peers(row, torch, device, lambda: None)
        return row

    peers.show("", [SimpleNamespace(name="one")], measured, lambda name, row: f" <{name}>")
    first, row = map(json.loads, out.read_text().splitlines())
    assert first["about"]["gpu"] == "Pretend GPU"
    assert first["about"]["date"].endswith("+00:00")
    assert ("ours_us" in row, "ours_in_turns_us" in row, "wrong" in row) == (counts, counts, not counts)
    assert (row["flash_us"], row["cuDNN_refused"], row["flushed_by_reading"]) == (250.0, "no such heads", True)
    shown = capsys.readouterr().out
    assert ("ours 8.0 us <ours_us>" in shown, "WRONG" in shown) == (counts, not counts)
    assert "flash 250.0 us" in shown
