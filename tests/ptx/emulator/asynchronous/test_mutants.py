"""The order of accesses, and mutants of pipelines: told apart by the checks, or shown to be harmless by the order."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.conftest import Bench
from tests.ptx.emulator.asynchronous.kernels import PIPE, STORE

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.mutation import mutations
from kernbench.ptx.proof import prove
from kernbench.safety.budget import Budget

BUDGET = Budget(steps=200_000, seconds=600)


def pipe(kernel, tiles=6, **options):
    device = ptx.EmulatedDevice("sm_90a")
    x = np.random.default_rng(1).standard_normal((tiles * 32, 32)).astype(np.float32)
    out = device.empty((tiles, 128), np.float32, "out")
    source = device.tensor_map(device.array(x, "x"), dims=(32, tiles * 32), strides=(128,), box=(32, 16))
    return device.launch(kernel, 1, 160, [source, out, tiles], budget=BUDGET, **options)


def store(kernel, **options):
    device = ptx.EmulatedDevice("sm_90a")
    out = device.empty((32, 32), np.uint32, "out")
    target = device.tensor_map(out, dims=(32, 32), strides=(128,), box=(32, 8))
    return device.launch(kernel, 1, 128, [target], budget=BUDGET, **options)


def kernel(text):
    return ptx.parse(text).kernels["kernel"]


def test_the_order_does_not_depend_on_the_schedule():
    digests = {pipe(kernel(PIPE), schedule=s, order=True).views["order"]["digest"] for s in ("canonical", "eager", 3)}
    assert len(digests) == 1


def test_a_dropped_barrier_changes_the_order_of_what_it_guarded():
    whole = Bench().pipe(order=True).recording
    torn = Bench().pipe(("  bar.warp.sync -1;\n", ""), order=True).recording
    change = whole.changes(torn, 1)[0]
    assert (change.warp, change.lane, change.line, change.occurrence) == (0, 0, 51, 3)
    assert change.kind == "write of shared memory"
    assert change.before > change.after


def test_order_needs_the_checks():
    with pytest.raises(MisuseError, match="leave checks=False out"):
        pipe(kernel(PIPE), order=True, checks=False)


def test_mutants_keep_the_lines_of_the_kernel():
    found = mutations(kernel(PIPE))
    lines = PIPE.split("\n")
    assert all(mutation.instruction.opcode in lines[mutation.line - 1] for mutation in found)
    dropped = next(m for m in found if m.change == "dropped" and m.instruction.opcode == "bar")
    assert "bar.warp.sync" in dropped.mutant.emit()
    assert "bar.sync" not in dropped.mutant.emit()
    other = next(m for m in found if m.change == "the other parity")
    assert "xor.b32 %mutant, %r11, 1;" in other.mutant.emit()


def test_every_mutant_of_a_store_is_told_apart_or_harmless():
    proof = prove(kernel(STORE), store)
    assert proof.survivors == []
    assert {v.mutation.change for v in proof.verdicts if v.outcome == "harmless"} == {"barrier +1"}


def test_a_relaxed_arrival_that_nobody_needs_is_equivalent():
    whole = kernel(PIPE)
    among = [m for m in mutations(whole) if "expect_tx" in m.text and m.change == "relaxed"]
    (verdict,) = prove(whole, pipe, among=among).verdicts
    assert verdict.outcome == "equivalent"
    assert "accesses came before its load of shared memory, now" in verdict.detail


def test_the_flow_tells_what_a_read_found():
    def flow(*edits):
        bench = Bench()
        bench.pipe(*edits, order="conflicts")
        return bench.run.recording.flow

    assert flow() == flow(("bar.sync 0;", "bar.sync 1;"))
    assert flow() != flow(("ld.shared.f32 %f2, [%r12+512];", "ld.shared.f32 %f2, [%r12+516];"))


def test_conflicts_that_nothing_orders_are_all_counted():
    whole, torn = Bench().pipe(order="conflicts"), Bench().pipe(("  bar.warp.sync -1;\n", ""), order="conflicts")
    # two blocks write the same sums, which is no race
    assert dict(whole.recording.unordered) == {(85, 85): 1024}
    assert whole.recording.torn(torn.recording) == [(78, 51), (79, 51), (80, 52), (81, 52)]


def test_an_order_of_another_kind():
    with pytest.raises(MisuseError, match="order='all': True, or 'conflicts'"):
        pipe(kernel(PIPE), order="all")


def test_a_kernel_that_is_not_safe_is_no_baseline():
    with pytest.raises(MisuseError, match="'kernel' itself is not safe under schedule 'canonical'"):
        prove(kernel(PIPE.replace("  bar.warp.sync -1;\n", "")), pipe)
