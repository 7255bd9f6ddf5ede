"""A second order of the programs: what they share in Python shows, what may differ by right is no fault."""

import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

from kernbench import ptx
from kernbench.bench import Bench, Expected, load_file, param, run_bench
from kernbench.bench.discovery.new import filled_in
from kernbench.bench.running.orders import is_cheap
from kernbench.common.errors import BenchError
from kernbench.result.run import Run, Status

SMALL = {"param(4,": "param(3,", "param(32,": "param(4,", "param(64,": "param(8,"}
STORE = "    tl.store(o_ptr, o / l)"
# each shares something between ranks, far within the golden's tolerance
SHARED = {
    "a global list": ("SEEN = []", "SEEN.append(1)", "1e-7 * len(SEEN)"),
    "a captured array": ("SEEN = np.zeros(1)", "SEEN[0] += 1e-7", "float(SEEN[0])"),
    "an attribute": ("class Kept: last = 0", "Kept.last = Kept.last * 0.5 + tl.program_id(0)", "1e-8 * Kept.last"),
    "a default argument": ("def kept(step, seen=[]): seen.append(step); return len(seen)", "n = kept(0)", "1e-7 * n"),
    "a generator": ("import itertools; COUNT = itertools.count()", "n = next(COUNT)", "1e-7 * n"),
}


def mesh_file(folder, before="", inside="pass", added="0"):
    text = filled_in("mesh", "mine").replace("def ring(", f"{before}\n\n\ndef ring(")
    for old, new in SMALL.items():
        text = text.replace(old, new)
    assert STORE in text
    file = folder / "mine.py"
    file.write_text(text.replace(STORE, f"    {inside}\n    tl.store(o_ptr, o / l + {added})"))
    return file


@pytest.mark.parametrize("shared", SHARED)
def test_state_that_ranks_share_is_found(tmp_path, shared):
    bench = load_file(mesh_file(tmp_path, *SHARED[shared]))
    assert run_bench(bench).ok, "one order alone shows nothing"
    run = run_bench(load_file(tmp_path / "mine.py"), second_order="cheap", timed=True)
    (finding,) = run.findings
    assert finding.kind == "order-dependent"
    assert "with schedule canonical and" in finding.message
    assert "differs, too" not in finding.message
    assert finding.where.text.startswith("tl.store(o_ptr")
    assert "default argument" in finding.hint
    assert run.safe is False
    assert "time_ps" not in run.metrics


def test_a_clean_kernel_passes_in_both_orders(tmp_path):
    for schedule, other in (("canonical", "reversed"), ("reversed", "canonical"), (7, "canonical")):
        run = run_bench(load_file(mesh_file(tmp_path)), second_order="always", schedule=schedule)
        assert run.ok
        assert "order-dependent" in run.checked
        assert run.views["orders"] == {"schedules": [schedule, other, 4], "outcome": "same"}


def test_what_is_wrong_in_the_order_that_was_asked_for_is_held_against_the_canonical_one(tmp_path):
    file = mesh_file(tmp_path, "SEEN = []", added="float(SEEN != sorted(SEEN))")
    first = "    q = tl.load("
    file.write_text(file.read_text().replace(first, f"    SEEN.append(tl.program_id(0))\n{first}", 1))
    assert run_bench(load_file(file)).ok
    run = run_bench(load_file(file), second_order="always", schedule="reversed")
    assert run.right is False
    (finding,) = run.findings
    assert finding.kind == "order-dependent"
    assert "with schedule reversed and" in finding.message


def test_nothing_is_claimed_where_one_order_ran(tmp_path):
    file = mesh_file(tmp_path)
    run = run_bench(load_file(file))
    assert "order-dependent" not in run.checked
    file.write_text(file.read_text().replace("p.n_ranks)\n\n\nbench", "p.n_ranks, schedule=3)\n\n\nbench"))
    run = run_bench(load_file(file), second_order="always", schedule=3)
    assert run.ok
    assert "order-dependent" not in run.checked


def test_what_goes_wrong_in_one_order_only(tmp_path):
    file = mesh_file(tmp_path, "SEEN = {}")
    first = "    q = tl.load("
    file.write_text(file.read_text().replace(first, f"    SEEN[tl.program_id(0)] = 1; SEEN[0]\n{first}", 1))
    (finding,) = run_bench(load_file(file), second_order="always").findings
    assert "only with schedule reversed: kernel-error: KeyError: 0" in finding.message
    assert finding.where.line


def test_a_launch_that_cannot_be_run_twice_is_no_finding(tmp_path):
    file = mesh_file(tmp_path)
    (tmp_path / "once").touch()
    once = f"    import os; os.remove({str(tmp_path / 'once')!r})\n    q, k, v = (torch"
    file.write_text(file.read_text().replace("    q, k, v = (torch", once))
    run = run_bench(load_file(file), second_order="always")
    assert run.ok
    assert "order-dependent" not in run.checked
    assert "cannot be run twice" in run.views["order_note"]


def test_a_file_that_cannot_be_loaded_twice_is_no_finding(tmp_path):
    """It fails at its second import only: a third one must not make it look as if the order had been the cause."""
    text = "import sys; sys.loads = getattr(sys, 'loads', 0) + 1; assert sys.loads != 2"
    try:
        run = run_bench(load_file(mesh_file(tmp_path, text)), second_order="always")
    finally:
        del sys.loads
    assert run.ok
    assert "could not be loaded" in run.views["order_note"]


def test_numbers_without_a_seed_are_explained(tmp_path):
    file = mesh_file(tmp_path, "DRAWN = np.random.default_rng()", "pass", "1e-7 * float(DRAWN.random())")
    (finding,) = run_bench(load_file(file), second_order="always").findings
    assert "a second run in the first order differs, too" in finding.message
    assert "without a seed" in finding.hint


def test_inputs_that_a_launch_changes_are_as_they_were(tmp_path):
    file = mesh_file(tmp_path)
    file.write_text(
        file.read_text().replace("    q, k, v = (torch", "    x['q'][:] = 2 * x['q']\n    q, k, v = (torch")
    )
    run = run_bench(replace(load_file(file), golden=lambda p, x: {"o": x["q"][:, 0] * 0}), second_order="always")
    assert run.right is False
    assert not run.findings


def test_a_bench_that_is_not_as_its_file_made_it(tmp_path):
    """Its functions are used, and not those of the file."""
    bench = load_file(mesh_file(tmp_path))
    ran = []

    def launch(p, x, *, torch):
        ran.append(torch.schedule)
        return bench.launch(p, x, torch=torch)

    assert run_bench(replace(bench, launch=launch), second_order="always").ok
    assert ran == ["canonical", "reversed", 4]


def test_the_npu_too(tmp_path):
    text = filled_in("npu", "mine").replace("param(8,", "param(2,")
    clean = tmp_path / "clean.py"
    clean.write_text(text)
    assert "order-dependent" in run_bench(load_file(clean), second_order="cheap").checked
    shared = text.replace("def softmax(core, s, p, scale):", "SEEN = []\n\n\ndef softmax(core, s, p, scale):")
    scale = "    SEEN.append(1)\n    scale = scale * (1 + 1e-3 * len(SEEN))\n    head, rows, keys"
    assert "    head, rows, keys" in shared
    (tmp_path / "mine.py").write_text(shared.replace("    head, rows, keys", scale, 1))
    run = run_bench(load_file(tmp_path / "mine.py"), second_order="cheap")
    assert [finding.kind for finding in run.findings] == ["order-dependent"]
    assert run.findings[0].where.file.endswith("mine.py")


SUM = """.version 8.0
.target sm_80
.address_size 64
.visible .entry total(.param .u64 x, .param .u64 o)
{
    .reg .b32 %r<4>; .reg .b64 %rd<8>; .reg .f32 %f<4>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [o];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.f32 %f1, [%rd4];
    atom.global.add.f32 %f2, [%rd2], %f1;
    ret;
}
"""


@dataclass(frozen=True)
class Parameters:
    """None but one."""

    allowed: float = param(2.0, "error that the golden allows")


def sum_bench():
    values = np.array([2**24, 1, -(2**24), 1], np.float32)

    def launch(p, x, *, torch):
        o = torch.array(np.zeros(1, np.float32), "o")
        return torch.launch(ptx.parse(SUM).kernels["total"], 4, 1, [torch.array(x["x"], "x"), o], outputs=[o])

    return Bench(
        "total",
        "a sum by atomics",
        Parameters,
        lambda p, rng: {"x": values},
        lambda p, x: {"o": Expected(np.array([1.0]), allowed=(0.0, p.allowed))},
        lambda p, machine: ptx.Host("emulator", "sm_80"),
        launch,
    )


def test_atomics_may_differ_and_the_golden_judges_both():
    one, other = (run_bench(sum_bench(), schedule=order).outputs["o"] for order in ("canonical", "reversed"))
    assert one != other, "the example must show what it is about"
    run = run_bench(sum_bench(), second_order="cheap")
    assert run.ok
    assert "order-dependent" in run.checked
    assert "atom.global.add.f32" in run.views["order_note"]
    assert run.views["orders"]["outcome"] == "both right"
    first = "canonical" if one[0] == 1 else "reversed"
    run = run_bench(sum_bench(), settings={"allowed": 0.5}, second_order="cheap", schedule=first)
    assert [finding.kind for finding in run.findings] == ["order-dependent"]
    assert "the golden accepts only the first" in run.findings[0].message


def test_work_decides_what_is_cheap_and_no_clock():
    def counted(**metrics):
        return Run({}, [], ("race",), Status.FINISHED, metrics=metrics)

    assert is_cheap(counted(commands=5_000, flops=10))
    assert not is_cheap(counted(commands=5_001))
    assert not is_cheap(counted(commands=10, flops=1e12))
    assert is_cheap(counted(warp_instructions=1000))
    assert not is_cheap(counted())


def test_unknown_choice():
    with pytest.raises(BenchError, match="never, cheap, always"):
        run_bench(sum_bench(), second_order="often")
