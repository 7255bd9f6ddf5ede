"""The scalar unit's cache: values that are stale, values that nobody sees, lines that two blocks share; and tput."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds, line_of, run_kernel

from kernbench import npu

X = np.arange(64, dtype=np.int32).reshape(4, 16)
SCHEDULES = ["canonical", "reversed", 1, 2]


def submit(kernel, *arrays, blocks=1, schedule="canonical", **options):
    def orchestrate(rt, x, out):
        rt.submit(aiv0=kernel, args=[npu.IN(x), npu.INOUT(out)], block_num=blocks, **options)

    return npu.Chip("a2a3").launch(orchestrate, *arrays, schedule=schedule)


def test_what_is_written_back_is_seen():
    def kernel(core, x, out):
        core.write(out, 0, 3, value=core.read(x, 1, 2) + 1)
        core.dcci(out)
        tile = core.alloc("UB", (1, 16), "i32")
        flag(core, "S", "MTE2")
        core.tload(tile, out[0:1])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[1:2], tile)
        core.pipe_sync()

    run = submit(kernel, X, np.zeros((4, 16), np.int32))
    assert run.findings == []
    assert run.outputs["out"][0, 3] == run.outputs["out"][1, 3] == 19
    assert npu.Chip("a2a3").retime(run).metrics["time_ps"] > 0


def test_what_stays_in_the_cache_is_found():
    def kernel(core, x, out):
        core.write(out, 0, 3, value=7)

    run = submit(kernel, X, np.zeros((4, 16), np.int32))
    assert "unflushed-write" in kinds(run)
    found = next(f for f in run.findings if f.kind == "unflushed-write")
    assert found.where.line == line_of(kernel, "core.write")
    assert run.outputs["out"][0, 3] == 0


def test_a_transfer_does_not_look_into_the_cache():
    def kernel(core, x, out):
        core.write(out, 0, 3, value=7)
        tile = core.alloc("UB", (1, 16), "i32")
        flag(core, "S", "MTE2")
        core.tload(tile, out[0:1])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[1:2], tile)
        core.dcci()
        core.pipe_sync()

    run = submit(kernel, X, np.zeros((4, 16), np.int32))
    assert "unflushed-write" in kinds(run)
    assert "a transfer reads element 3" in next(f for f in run.findings if f.kind == "unflushed-write").message


def test_a_write_back_without_its_flag_races_with_the_transfer():
    def kernel(core, x, out):
        core.write(out, 0, 3, value=7)
        core.dcci(out)
        tile = core.alloc("UB", (1, 16), "i32")
        core.tload(tile, out[0:1])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[1:2], tile)
        core.pipe_sync()

    assert "race" in kinds(submit(kernel, X, np.zeros((4, 16), np.int32)))


@pytest.mark.parametrize("dropped", [True, False])
def test_a_value_that_a_transfer_changed_is_stale_until_it_is_dropped(dropped):
    def kernel(core, x, out):
        before = core.read(out, 0, 0)
        tile = core.alloc("UB", (1, 16), "i32")
        core.tload(tile, x[1:2])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[0:1], tile)
        flag(core, "MTE3", "S")
        if dropped:
            core.dcci(out[0])
        core.write(out, 1, 0, value=int(core.read(out, 0, 0)) - int(before))
        core.dcci(out[1])
        core.pipe_sync()

    run = submit(kernel, X, np.zeros((4, 16), np.int32))
    if dropped:
        assert run.findings == []
        assert run.outputs["out"][1, 0] == 16
    else:
        assert kinds(run) == ["stale-read"]
        assert "this block wrote it to memory" in run.findings[0].message
        # as on the chip: the old value
        assert run.outputs["out"][1, 0] == 0


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("dropped", [True, False])
def test_a_value_that_another_block_wrote_is_dropped_before_it_is_read_again(dropped, schedule):
    def kernel(core, x, out, signal):
        if core.block_idx == 0:
            tile = core.alloc("UB", (1, 16), "i32")
            core.tload(tile, x[1:2])
            flag(core, "MTE2", "MTE3")
            core.tstore(out[0:1], tile)
            flag(core, "MTE3", "S")
            core.tnotify(signal[0], 1)
        else:
            core.read(out, 0, 15) if not dropped else None
            core.twait(signal[0], 1)
            core.write(out, 1, 0, value=core.read(out, 0, 0))
            core.dcci(out[1])
        core.pipe_sync()

    def orchestrate(rt, x, out):
        signal = rt.tensor((1,), "i32", "signal", initial_value=0)
        args = [npu.IN(x), npu.NO_DEP(out), npu.NO_DEP(signal)]
        rt.submit(aiv0=kernel, args=args, block_num=2, sync_start=True)

    run = npu.Chip("a2a3").launch(orchestrate, X, np.zeros((4, 16), np.int32), schedule=schedule)
    if dropped:
        assert run.findings == []
        assert run.outputs["out"][1, 0] == 16
    else:
        assert "stale-read" in kinds(run)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("apart", "found"), [(1, ["false-sharing"]), (16, [])])
def test_blocks_that_write_into_one_line(apart, found, schedule):
    def kernel(core, x, out):
        at = core.block_idx * apart
        core.write(out, at // 16, at % 16, value=core.block_idx + 1)
        core.dcci(out[at // 16])

    run = submit(kernel, X, np.zeros((4, 16), np.int32), blocks=4, schedule=schedule)
    assert kinds(run) == found
    if not found:
        assert run.outputs["out"].reshape(-1)[::16].tolist() == [1, 2, 3, 4]


# a scalar write to one half of a line, a store to the other, and what has to be between them
STEPS = {
    "write": lambda core, out, tile: core.write(out, 0, 0, value=9),
    "clean": lambda core, out, tile: core.dcci(out),
    "store": lambda core, out, tile: core.tstore(out[0:1, 8:16], tile),
    "flag to S": lambda core, out, tile: flag(core, "MTE3", "S"),
    "flag to MTE3": lambda core, out, tile: flag(core, "S", "MTE3"),
}


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ("write, clean, flag to MTE3, store", []),
        ("store, flag to S, write, clean", []),
        # the line may be taken before the store, or go to memory after it
        ("store, write, clean", ["race"]),
        ("write, clean, store", ["race"]),
        # the line was taken before the store, and goes over it
        ("write, flag to MTE3, store, flag to S, clean", ["false-sharing"]),
        ("write, store, clean", ["false-sharing", "race"]),
    ],
)
def test_a_line_goes_to_memory_whole(steps, found):
    def kernel(core, x, out):
        tile = core.alloc("UB", (1, 8), "i32")
        core.tload(tile, x[1:2, 8:16])
        flag(core, "MTE2", "MTE3")
        for step in steps.split(", "):
            STEPS[step](core, out, tile)
        core.pipe_sync()

    run = submit(kernel, X, np.zeros((4, 16), np.int32))
    assert sorted(kinds(run)) == found
    if not found:
        assert run.outputs["out"][0].tolist() == [9, *[0] * 7, *range(24, 32)]
        assert npu.Chip("a2a3").retime(run).metrics["time_ps"] > 0


def test_kernels_begin_with_an_empty_cache():
    def first(core, out):
        core.write(out, 0, 0, value=int(core.read(out, 0, 0)) + 5)
        core.dcci(out)

    def orchestrate(rt, out):
        for _ in range(3):
            rt.submit(aiv0=first, args=[npu.INOUT(out)])

    run = npu.Chip("a2a3").launch(orchestrate, np.zeros((1, 16), np.int32))
    assert run.findings == []
    assert run.outputs["out"][0, 0] == 15


@pytest.mark.parametrize("shape", [(40,), (5, 40), (2, 5, 40)])
@pytest.mark.parametrize("add", [False, True])
def test_memory_is_put_by_way_of_a_tile(shape, add):
    source = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)

    def kernel(core, a, out):
        core.tput(out, a, core.alloc("UB", (2, 16)), add)
        core.pipe_sync()

    def orchestrate(rt, a, out):
        rt.submit(aiv0=kernel, args=[npu.IN(a), npu.INOUT(out)])

    run = npu.Chip("a2a3").launch(orchestrate, source, np.ones(shape, np.float32))
    assert run.findings == []
    assert (run.outputs["out"] == source + add).all()


def test_a_put_that_fits_nothing_is_refused_and_what_follows_it_needs_its_own_flag():
    run = run_kernel(lambda core, a, out: core.tput(out, a, core.alloc("UB", (2, 16), "f16")),
                     np.ones((2, 16), np.float32), out=np.zeros((2, 16), np.float32))  # fmt: skip
    assert "tensors of one shape, and all of one type" in run.findings[0].message

    def reads_on(core, a, out):
        tile = core.alloc("UB", (2, 16), name="staging")
        core.tput(out, a, tile)
        core.tadds(tile, tile, 1.0)
        core.pipe_sync()

    run = run_kernel(reads_on, np.ones((2, 16), np.float32), out=np.zeros((2, 16), np.float32))
    assert "race" in kinds(run)


def test_a_tile_has_no_lines_in_the_cache():
    def kernel(core, x, out):
        core.dcci(core.alloc("UB", (1, 16), "i32", name="t"))  # no view of a tensor

    (finding,) = (f for f in submit(kernel, X, X).findings if f.kind == "misuse")
    assert "dcci: a view of a tensor is wanted, whose lines the cache has; got <Tile 't'" in finding.message
    assert finding.where.line == line_of(kernel, "no view of a tensor")
