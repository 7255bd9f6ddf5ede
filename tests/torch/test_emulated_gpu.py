"""Operators on tensors of a GPU that is not there: what they do on one, with the driver's stand-in below them."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed: make test-doors installs it")

PROGRAM = """
import torch
import kernbench.torch as kt

torch.manual_seed(0)
shape, lengths = kt.DecodeShape(8, 2, 64, "f16", kt.PagedCache(16)), [70, 0, 33]
q = torch.randn(3, 8, 64, device="cuda").half()
k, v = (torch.randn(18, 16, 2, 64, device="cuda").half() for _ in range(2))
table = torch.randperm(18, device="cuda").reshape(3, 6).to(torch.int32)
plan = kt.DecodePlan(shape, [1, 2, 3], device="cuda")
plan.update(lengths)
new = torch.randn(2, 3, 2, 64, device="cuda").half()
slots = kt.slots_of(table, torch.tensor([69, 0, 32], device="cuda"), 16)
kt.append(new[0], new[1], k, v, slots)
for _ in range(2):
    out = kt.decode(q, k, v, plan, table=table)
assert out.is_cuda
here = kt.DecodePlan(shape, lengths, device="cpu")
same = kt.decode(q.cpu(), k.cpu(), v.cpu(), here, table=table.cpu())
torch.testing.assert_close(out.cpu(), same, atol=1e-3, rtol=0)

prompts = kt.PrefillShape(2, 1, 64, "bf16")
x = [torch.randn(40, heads, 64, device="cuda").bfloat16() for heads in (2, 1, 1)]
out = kt.prefill(*x, kt.PrefillPlan(prompts, [30, 10], device="cuda"))
same = kt.prefill(*(one.cpu() for one in x), kt.PrefillPlan(prompts, [30, 10], device="cpu"))
torch.testing.assert_close(out.cpu(), same, atol=2e-2, rtol=0)

parts, lses = torch.randn(3, 2, 4, 64, device="cuda"), torch.randn(3, 2, 4, device="cuda")
wanted = (lses.softmax(0)[..., None] * parts).sum(0)
torch.testing.assert_close(kt.merge(parts, lses), wanted)
print("all as on the CPU")
"""


def test_operators_on_cuda_tensors(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [sys.executable, "-m", "kernbench.cli", "exec", "--", sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all as on the CPU" in done.stdout
    for kernel in ("decode_sm90", "prefill_sm90", "append", "merge"):
        assert kernel in done.stderr
    assert "no findings" in done.stderr
