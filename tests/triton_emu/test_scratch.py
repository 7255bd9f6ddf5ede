"""Scratch memory: reused when handles die, never shared by two live values, and its end is reported."""

import gc
import inspect
import random
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from tests import sampled

from kernbench import mesh
from kernbench.common.errors import KernelError, MisuseError
from kernbench.common.pe_commands import TensorHandle
from kernbench.machine import load
from kernbench.result.run import Status
from kernbench.triton_emu import TLContext, run_kernel
from kernbench.triton_emu.pe.scratch import ALIGNMENT, ScratchPool

BASE, SIZE = 4096, 64 * 40
pytestmark = pytest.mark.usefixtures("small_heap")


def aligned(nbytes):
    return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)


class Pool(RuleBasedStateMachine):
    """A pool against a list of live blocks."""

    def __init__(self):
        super().__init__()
        self.overflows = []
        self.pool = ScratchPool(BASE, SIZE, lambda handle: None, self.overflows.append)
        self.model = []
        self.peak = 0

    blocks = Bundle("blocks")

    def gaps(self):
        """Free stretches, worked out from the live blocks alone."""
        edges = [BASE]
        for block in sorted((b for b in self.model if b.addr < BASE + SIZE), key=lambda b: b.addr):
            edges += [block.addr, block.addr + block.nbytes]
        edges.append(BASE + SIZE)
        return [end - start for start, end in zip(edges[::2], edges[1::2], strict=True)]

    @rule(target=blocks, nbytes=st.integers(0, 700) | st.sampled_from([64, 128, 1024, SIZE]))
    def allocate(self, nbytes):
        gaps, before = self.gaps(), len(self.overflows)
        block = self.pool.allocate(nbytes)
        fits = max(gaps) >= aligned(nbytes)
        assert block.nbytes == aligned(nbytes)
        assert (len(self.overflows) == before) == fits
        inside = block.addr >= BASE and block.addr + block.nbytes <= BASE + SIZE
        assert inside == fits
        self.model.append(block)
        self.peak = max(self.peak, sum(b.nbytes for b in self.model))
        return block

    @rule(block=consumes(blocks))
    def release(self, block):
        self.pool.release(block)
        self.model.remove(block)

    @rule(target=blocks, block=consumes(blocks))
    def replace(self, block):
        fresh = self.pool.replace(block)
        assert (fresh.addr, fresh.nbytes, block.replaced, fresh.replaced) == (block.addr, block.nbytes, True, False)
        # the old block has nothing to give back any more
        self.pool.release(block)
        self.model[self.model.index(block)] = fresh
        return fresh

    @rule(block=blocks, start=st.integers(0, 700), nbytes=st.integers(1, 700))
    def look_up(self, block, start, nbytes):
        found = self.pool.block_at(block.addr + start, nbytes)
        if start + nbytes <= block.nbytes:
            assert found is block
        elif found is not None:
            assert found.addr <= block.addr + start
            assert block.addr + start + nbytes <= found.addr + found.nbytes

    @invariant()
    def no_two_live_blocks_overlap(self):
        ordered = sorted(self.model, key=lambda b: b.addr)
        assert all(a.addr + a.nbytes <= b.addr for a, b in pairwise(ordered))
        assert all((b.addr - BASE) % ALIGNMENT == 0 for b in ordered)

    @invariant()
    def the_books_are_right(self):
        assert self.pool.used == sum(b.nbytes for b in self.model)
        assert self.pool.peak == self.peak
        assert list(self.pool.live()) == sorted(self.model, key=lambda b: (-b.nbytes, b.addr))

    @rule()
    def the_largest_gap_is_right(self):
        assert self.pool.largest_gap() == max(self.gaps())


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=sampled.examples(20, 60), stateful_step_count=40)


@pytest.mark.parametrize(("base", "size"), [(-1, 64), (0, -64)])
def test_a_pool_has_no_negative_bounds(base, size):
    with pytest.raises(MisuseError, match="must not be negative"):
        TLContext(scratch_base=base, scratch_size=size)


def record(kernel, **context):
    tl = TLContext(**context)
    return run_kernel(kernel, tl), tl


def test_a_loop_needs_no_more_than_its_live_values():
    def kernel(*, tl):
        x = tl.zeros((8, 8))
        for _ in range(1000):
            x = x + 1.0

    _, tl = record(kernel, scratch_size=1024)
    assert tl.scratch_peak == 512


def test_addresses_start_at_the_base_and_are_aligned():
    def kernel(*, tl):
        return [tl.zeros((n,), "i8") for n in (1, 64, 65, 0)]

    handles, tl = record(kernel, scratch_base=0x10000)
    assert [h.addr - 0x10000 for h in handles] == [0, 64, 128, 256]
    assert tl.scratch_peak == 320


def test_the_same_kernel_gets_the_same_addresses():
    def kernel(*, tl):
        kept = []
        for i in range(50):
            x = tl.zeros((8, 1 + i % 5))
            y = tl.exp(x) + 1.0
            if i % 7 == 0:
                kept.append(y)
            if i % 11 == 0 and kept:
                kept.pop(0)

    runs = [record(kernel)[1] for _ in range(2)]
    first, second = ([c.out.addr for c in tl.commands] for tl in runs)
    assert first == second


def addresses_after(give_back, n=4):
    """Where `n` values lie that are made after `n` others of their size were given back between two commands."""

    def kernel(*, tl):
        give_back([tl.full((16,), float(i)) for i in range(n)])
        return [handle.addr for handle in [tl.zeros((16,)) for _ in range(n)]]

    return record(kernel)[0]


def one_by_one(order):
    def give_back(handles):
        for i in order:
            handles[i] = None

    return give_back


def as_locals(handles):
    a, b, c, d = handles
    handles.clear()
    assert (a, b, c, d)[3] is d


def in_a_closure(handles):
    a, b, c, d = handles
    handles.clear()

    def inner():
        return d, b, a, c

    assert len(inner()) == 4


def as_keys(handles):
    known = dict.fromkeys(reversed(handles))
    handles.clear()
    known.clear()


def test_the_order_in_which_handles_end_between_two_commands_does_not_matter():
    """Frames, tuples and dictionaries drop what they hold in an order that differs between versions of Python."""
    ways = [one_by_one(order) for order in permutations(range(4))]
    ways += [as_locals, in_a_closure, as_keys, list.clear, list.reverse, lambda handles: handles.sort(key=id)]
    found = {tuple(addresses_after(way)) for way in ways}
    assert found == {(0, 64, 128, 192)}


def random_program(seed, ordered):
    """Makes values of three sizes, and before each gives back some: in the order that `ordered` puts their numbers."""

    def kernel(*, tl):
        draw, live, found = random.Random(seed), [], []
        for _ in range(40):
            size, dead = draw.randrange(3), draw.sample(range(len(live)), draw.randint(0, min(5, len(live))))
            for i in ordered(dead):
                live[i] = None
            live = [handle for handle in live if handle is not None]
            live.append(tl.full((16 << size,), 1.0))
            if size == 1:
                tl.exp(live[0], out=live[0])
            found.append(live[-1].addr)
        return found

    return record(kernel)[0]


@pytest.mark.parametrize("seed", range(12))
def test_programs_that_give_back_in_any_order_get_the_same_addresses(seed):
    first = random_program(seed, list)
    assert random_program(seed, sorted) == first
    assert random_program(seed, lambda dead: dead[::-1]) == first


@pytest.mark.parametrize("seed", range(8))
def test_of_many_blocks_that_are_given_back_at_once_those_of_the_oldest_values_come_first(seed):
    draw = random.Random(seed)
    pool = ScratchPool(BASE, 1 << 16, lambda handle: None, lambda size: None)
    numbers = draw.sample(range(1000), 100)
    blocks = [pool.allocate(64) for _ in numbers]
    for block, number in zip(blocks, numbers, strict=True):
        block.number = number
    groups = [numbers[:3], numbers[3:40], numbers[40:]]
    by_number = dict(zip(numbers, blocks, strict=True))
    for number, group in enumerate(groups):
        order = sorted(group, reverse=True) if number == 1 else draw.sample(group, len(group))
        for one in order:
            pool.release(by_number[one])
        # what is given back from here on comes later
        pool.settle()
    found = [pool.allocate(64).number for _ in numbers]
    assert found == [number for group in groups for number in sorted(group)]


@pytest.mark.parametrize("folds", [True, False])
def test_when_cycles_are_collected_does_not_matter(folds, monkeypatch):
    def kernel(x, *, tl):
        for j in tl.range(40):
            tied = [tl.load(x + 64 * j, shape=(16,)) + 1.0]
            tied.append(tied)
            tl.store(x + 64 * j, tied[0] * 2.0)

    def rows(new_objects):
        monkeypatch.setattr("kernbench.safety.collector._NEW_OBJECTS", new_objects)
        machine = load("small").override({"pe.scratch": "1 KiB"})
        host = mesh.Host(machine, ranks=1, shapes_only=True)
        host.folds = folds
        run = host.launch(kernel, host.empty((64, 16)))
        return run.recording.streams[0].rows.columns().tobytes(), [str(finding) for finding in run.findings]

    usual = gc.get_threshold()
    try:
        gc.set_threshold(1)
        found = [rows(new_objects) for new_objects in (1, 3, 50, 1 << 30)]
    finally:
        gc.set_threshold(*usual)
    assert all(other == found[0] for other in found)


def test_live_values_never_share_memory():
    def kernel(*, tl):
        live = []
        for i in range(200):
            live.append(tl.zeros((1 + i % 9, 8)))
            if i % 3 == 0:
                live.pop(i % len(live))
            spans = sorted((h.addr, h.addr + h.nbytes) for h in live)
            assert all(a[1] <= b[0] for a, b in pairwise(spans))

    record(kernel)


def test_a_dead_value_makes_room_for_another():
    def kernel(*, tl):
        first = tl.zeros((16,))
        address = first.addr
        del first
        return address, tl.zeros((16,)).addr

    (before, after), _ = record(kernel)
    assert before == after


def test_a_view_keeps_its_value_and_a_request_its_source():
    def kernel(*, tl):
        x = tl.zeros((16,))
        y = tl.zeros((16,))
        view, request, addresses = x[0:4], tl.send_async("E", y), {x.addr, y.addr}
        del x, y
        others = [tl.zeros((16,)) for _ in range(4)]
        assert not addresses & {h.addr for h in others}
        request.wait()
        del view, request
        gc.collect()
        return addresses, {tl.zeros((16,)).addr, tl.zeros((16,)).addr}

    (before, after), _ = record(kernel)
    assert after <= before


def overflowing(*, tl):
    first = tl.zeros((64, 64))  # 16 KiB
    second = tl.full((64, 32), 1.0)  # 8 KiB
    third = tl.exp(first)  # does not fit
    return first, second, third


def line(marker, function=overflowing):
    lines, start = inspect.getsourcelines(function)
    return next(start + i for i, text in enumerate(lines) if text.rstrip().endswith(f"# {marker}"))


def test_an_overflow_is_an_error_while_recording():
    with pytest.raises(KernelError) as caught:
        record(overflowing, scratch_size=32 << 10)
    error = caught.value
    assert error.kind == "scratch-overflow"
    assert error.where.line == line("does not fit")
    text = str(error)
    assert "a value of 16 KiB does not fit the scratch memory: 24 KiB of 32 KiB are in use" in text
    assert f"64x64 f32 (16 KiB) from {error.where.short_file}:{line('16 KiB')} `first = tl.zeros" in text
    assert f"64x32 f32 (8 KiB) from {error.where.short_file}:{line('8 KiB')}" in text
    assert "largest gap" not in text
    assert "out=" in error.hint


def test_just_enough_is_enough():
    _, tl = record(overflowing, scratch_size=40 << 10)
    assert tl.scratch_peak == 40 << 10


@pytest.mark.parametrize("shapes_only", [False, True])
def test_an_overflow_in_a_launch_is_a_finding_and_the_values_stay_right(shapes_only):
    def kernel(x_ptr, o_ptr, *, tl):
        first = tl.load(x_ptr, shape=(1 << 10, 512))  # two MiB
        second = first + 1.0  # two more
        third = second * first  # too much
        tl.store(o_ptr, third - second)

    x = np.arange(1 << 19, dtype=np.float32).reshape(1 << 10, 512) % 7
    host = mesh.Host("small", ranks=1, shapes_only=shapes_only)
    out = host.empty(x.shape)
    run = host.launch(kernel, host.replicate(x), out)
    assert run.status is Status.FINISHED
    assert not run.safe
    findings = {f.where.line: f for f in run.findings}
    assert {f.kind for f in run.findings} == {"scratch-overflow"}
    finding = findings[line("too much", kernel)]
    assert "2 MiB does not fit the scratch memory: 4 MiB of 4 MiB are in use" in finding.message
    for marker in ("two MiB", "two more"):
        assert f"{finding.where.short_file}:{line(marker, kernel)}" in finding.message
    assert [o.where.line for o in finding.others] == [line("two MiB", kernel), line("two more", kernel)]
    assert {o.role for o in finding.others} == {"made a live value"}
    assert finding.ranks == (0,)
    assert run.metrics["scratch_peak_bytes"] == 8 << 20
    if not shapes_only:
        np.testing.assert_array_equal(host.gather(out), (x + 1) * x - (x + 1))


def test_broken_up_memory_says_how_large_the_largest_gap_is():
    def kernel(*, tl):
        kept = [tl.zeros((64,)) for _ in range(16)]
        del kept[::2]
        return tl.zeros((128,))

    with pytest.raises(KernelError, match="2 KiB of 4 KiB are in use, the largest gap 256 bytes"):
        record(kernel, scratch_size=4096)


def test_neighbouring_gaps_join():
    def kernel(*, tl):
        kept = [tl.zeros((64,)) for _ in range(16)]
        address = kept[4].addr
        del kept[4:8]
        return address, tl.zeros((4, 64)).addr

    (gap, address), _ = record(kernel, scratch_size=4096)
    assert gap == address


def test_many_live_values_are_counted_together():
    def kernel(*, tl):
        return [tl.zeros((64,)) for _ in range(20)]

    with pytest.raises(KernelError, match="8 smaller ones, 2 KiB together"):
        record(kernel, scratch_size=4096)


def test_a_receive_under_way_counts_as_live():
    def kernel(*, tl):
        tl.full((256,), 1.0)
        coming = tl.recv_async("W", (512,), "f32")
        return tl.zeros((1024,)), coming

    with pytest.raises(KernelError, match="512 f32"):
        record(kernel, scratch_size=4096)


def test_a_single_value_larger_than_the_scratch_is_reported():
    with pytest.raises(KernelError, match=r"a value of 8 KiB does not fit .* 0 bytes of 4 KiB are in use") as caught:
        record(lambda *, tl: tl.zeros((2048,)), scratch_size=4096)
    assert caught.value.kind == "scratch-overflow"


def test_work_goes_on_after_an_overflow_in_a_launch_once_space_is_free_again():
    def kernel(o_ptr, *, tl):
        large = tl.zeros((3, 1 << 18))
        over = tl.zeros((2, 1 << 18))
        stray = over.addr
        del over, large
        again = tl.full((4, 1 << 18), 2.0)
        assert again.addr < stray
        tl.store(o_ptr, again[0, 0:4])

    host = mesh.Host("small", ranks=1)
    out = host.empty((4,))
    run = host.launch(kernel, out)
    assert [f.kind for f in run.findings] == ["scratch-overflow"]
    assert host.gather(out).tolist() == [2.0] * 4


def test_a_clean_kernel_has_no_finding_and_reports_its_peak():
    def kernel(o_ptr, *, tl):
        x = tl.zeros((64,))
        for _ in range(100):
            x = x + TensorHandle(addr=x.addr, shape=(64,), dtype="f32")
        tl.store(o_ptr, x)

    host = mesh.Host("small", ranks=1)
    run = host.launch(kernel, host.empty((64,)))
    assert run.safe, run.findings
    assert run.metrics["scratch_peak_bytes"] == 512
