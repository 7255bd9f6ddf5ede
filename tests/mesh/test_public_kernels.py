"""Kernels in the styles people write: each runs right, clean and timed; each of three slips in it is found at its line,
or shows in the numbers.
"""

import inspect
import linecache
from dataclasses import dataclass, field
from textwrap import dedent

import numpy as np
import pytest

from kernbench import mesh
from kernbench.mesh.time import retime

F = np.float32
WRONG = "wrong numbers"


def matmul(a_ptr, b_ptr, c_ptr, m, n, k, block, *, tl):
    rows, columns = tl.cdiv(m, block), tl.cdiv(n, block)
    for tile in range(tl.program_id(0), rows * columns, tl.num_programs(0)):
        i, j = tl.swizzle2d(tile // columns, tile % columns, rows, columns, 2)
        a = tl.make_block_ptr(a_ptr, (m, k), (k, 1), (i * block, 0), (block, block), (1, 0))
        b = tl.make_block_ptr(b_ptr, (k, n), (n, 1), (0, j * block), (block, block), (1, 0))
        acc = tl.zeros((block, block), dtype=tl.float32)
        for _ in tl.range(0, tl.cdiv(k, block), num_stages=3):
            acc = tl.dot(tl.load(a, boundary_check=(0, 1)), tl.load(b, boundary_check=(0, 1)), acc)
            a, b = tl.advance(a, (0, block)), tl.advance(b, (block, 0))
        c = tl.make_block_ptr(c_ptr, (m, n), (n, 1), (i * block, j * block), (block, block), (1, 0))
        tl.store(c, acc.to(tl.float16), boundary_check=(0, 1))


def flash(q_ptr, k_ptr, v_ptr, o_ptr, s, d, block, *, tl):
    tl.static_assert(s % block == 0)
    q_tiles, k_tiles, v_tiles, o_tiles = (
        tl.make_tensor_descriptor(p, [s, d], [d, 1], [block, d]) for p in (q_ptr, k_ptr, v_ptr, o_ptr)
    )
    for first in range(0, s, block):
        q, rows = q_tiles.load([first, 0]), first + tl.arange(0, block)
        m = tl.full([block], float("-inf"), tl.float32)
        l, acc = tl.zeros([block], tl.float32), tl.zeros([block, d], tl.float32)
        for start in range(0, first + block, block):
            x = tl.dot(q, k_tiles.load([start, 0]).T) * (d**-0.5 * 1.44269504)
            x = tl.where(rows[:, None] >= start + tl.arange(0, block)[None, :], x, float("-inf"))
            new = tl.maximum(m, tl.max(x, 1, keep_dims=False))
            p, shrink = tl.math.exp2(x - new[:, None]), tl.math.exp2(m - new)
            l = l * shrink + tl.sum(p, 1, keep_dims=False)
            acc = tl.dot(p.to(tl.float16), v_tiles.load([start, 0]), acc * shrink[:, None])
            m = new
        o_tiles.store([first, 0], acc / l[:, None])


def paged(q_ptr, k_ptr, v_ptr, table_ptr, length_ptr, o_ptr, batch, d, page, pages, *, tl):
    for b in range(batch):
        q, length = tl.load(q_ptr + 2 * b * d, (1, d)), int(tl.load(length_ptr + 4 * b))
        m, l, acc = tl.full((1, 1), float("-inf")), tl.zeros((1, 1)), tl.zeros((1, d))
        for i in range(tl.cdiv(length, page)):
            at = 2 * int(tl.load(table_ptr + 4 * (b * pages + i))) * page * d
            rows = min(page, length - i * page)
            k, v = tl.load(k_ptr + at, (rows, d)), tl.load(v_ptr + at, (rows, d))
            x = tl.dot(q, k.T) * d**-0.5
            new = tl.maximum(m, x.max(1))
            p, shrink = tl.exp(x - new), tl.exp(m - new)
            l, acc, m = l * shrink + p.sum(1), acc * shrink + tl.dot(p, v), new
        tl.store(o_ptr + 2 * b * d, acc / l)


def recurrence(a_ptr, x_ptr, o_ptr, t, c, *, tl):
    def then(a1, b1, a2, b2):
        return a1 * a2, b1 * a2 + b2

    a, x = tl.load(a_ptr, (t, c)), tl.load(x_ptr, (t, c))
    _, h = tl.associative_scan((a, x), 0, then)
    tl.store(o_ptr, h)


def cross_entropy(x_ptr, y_ptr, o_ptr, rows, v, *, tl):
    for r in range(rows):
        x = tl.load(x_ptr + 2 * r * v, (v,)).to(tl.float32)
        y = tl.load(y_ptr + 4 * r)
        tl.device_assert((y >= 0) & (y < v), "a label outside the vocabulary")
        m = tl.max(x, 0)
        total = m + tl.log(tl.sum(tl.exp(x - m), 0))
        tl.store(o_ptr + 4 * r, total - tl.sum(tl.where(tl.arange(0, v) == y, x, 0.0), 0))


def rotary(x_ptr, cos_ptr, sin_ptr, o_ptr, s, d, *, tl):
    x = tl.load(x_ptr, (s, d)).to(tl.float32)
    cos, sin = tl.load(cos_ptr, (s, d // 2)), tl.load(sin_ptr, (s, d // 2))
    even, odd = tl.split(x.reshape(s, d // 2, 2))
    tl.store(o_ptr, tl.interleave(even * cos - odd * sin, odd * cos + even * sin))


def ring_sum(x_ptr, o_ptr, n, c, *, tl):
    r = tl.program_id(0)
    parts = [tl.load(x_ptr + 4 * c * i, (c,)) for i in range(n)]
    for step in range(n - 1):
        sent = tl.send_async("E", parts[(r - step) % n])
        parts[(r - step - 1) % n] += tl.recv("W", (c,), "f32")
        tl.wait(sent)
    for step in range(n - 1):
        sent = tl.send_async("E", parts[(r + 1 - step) % n])
        parts[(r - step) % n] = tl.recv("W", (c,), "f32")
        tl.wait(sent)
    for i in range(n):
        tl.store(o_ptr + 4 * c * i, parts[i])


def halo(x_ptr, o_ptr, rows, c, *, tl):
    r, n = tl.program_id(0), tl.num_programs(0)
    x = tl.load(x_ptr, (rows, c))
    if r < n - 1:
        tl.send("E", x[rows - 1 : rows])
    if r > 0:
        tl.send("W", x[0:1])
    above = tl.recv("W", (1, c)) if r > 0 else tl.zeros((1, c), x.dtype)
    below = tl.recv("E", (1, c)) if r < n - 1 else tl.zeros((1, c), x.dtype)
    wide = tl.cat([above, x, below])
    tl.store(o_ptr, (wide[:-2] + wide[1:-1] + wide[2:]) / 3)


@dataclass(frozen=True)
class Case:
    """A kernel, its inputs (sharded over several ranks), what it gives, and slips with what they show."""

    kernel: object
    inputs: list
    wanted: np.ndarray
    dtype: str
    sizes: tuple
    slips: list
    ranks: int = 1
    install: str = "line"
    split_output: bool = False
    tolerance: float = field(default=1e-2)


def normal(*shape, dtype=np.float16):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def attention(q, k, v, keep=None):
    x = q.astype(F) @ k.T.astype(F) * q.shape[1] ** -0.5
    x = x if keep is None else np.where(keep, x, -np.inf)
    p = np.exp(x - x.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True) @ v.astype(F)


def matmul_case():
    a, b = normal(70, 50), normal(50, 90)
    slips = [
        ("acc.to(tl.float16), boundary_check=(0, 1)", "acc.to(tl.float16)", "out-of-bounds"),
        ("tl.advance(b, (block, 0))", "tl.advance(b, (0, block))", WRONG),
        ("tl.dot(tl.load(a, ", "tl.dot(tl.load(a_ptr, mask=a, ", "misuse"),
    ]
    return Case(matmul, [a, b], a.astype(F) @ b.astype(F), "f16", (70, 90, 50, 32), slips)


def flash_case():
    q, k, v = (normal(64 + i, 16)[:64] for i in range(3))
    slips = [
        ("load([start, 0]).T)", "load([start, 0]))", "shape"),
        ("acc / l[:, None]", "acc", WRONG),
        ("rows[:, None] >= start", "rows[:, None] <= start", WRONG),
    ]
    return Case(flash, [q, k, v], attention(q, k, v, np.tril(np.ones((64, 64), bool))), "f16", (64, 16, 32), slips)


def paged_case():
    lengths, table = np.array([5, 17, 32], np.int32), np.arange(12, dtype=np.int32)[::-1].reshape(3, 4).copy()
    q, k, v = normal(3, 32), normal(12, 8, 32), normal(13, 8, 32)[:12]
    wanted = [
        attention(q[b : b + 1], *(x[table[b]].reshape(-1, 32)[: lengths[b]] for x in (k, v)))[0] for b in range(3)
    ]
    slips = [
        ("rows = min(page, length - i * page)", "rows = page", WRONG),
        ("4 * (b * pages + i)", "b * pages + i", "misaligned"),
        ("tl.load(k_ptr + at,", "tl.load(k_ptr + 2 * at,", "out-of-bounds"),
    ]
    return Case(paged, [q, k, v, table, lengths], np.stack(wanted), "f16", (3, 32, 8, 4), slips)


def recurrence_case():
    a, x = (1 / (1 + np.exp(-normal(21, 4, dtype=F)))), normal(22, 4, dtype=F)[:21]
    h, wanted = np.zeros(4), []
    for t in range(21):
        h = h * a[t] + x[t]
        wanted.append(h)
    slips = [
        ("b1 * a2 + b2", "b1 * a1 + b2", WRONG),
        ("return a1 * a2, b1 * a2 + b2", "return b1 * a2 + b2", "shape"),
        ("(a, x), 0, then", "(a, x), 2, then", "shape"),
    ]
    return Case(recurrence, [a, x], np.array(wanted), "f32", (21, 4), slips, tolerance=1e-5)


def cross_entropy_case():
    x, y = normal(5, 50), np.array([3, 0, 49, 7, 7], np.int32)
    wide = x.astype(np.float64)
    wanted = np.log(np.exp(wide).sum(1)) - wide[np.arange(5), y]
    slips = [
        ("x_ptr + 2 * r * v", "x_ptr + 4 * r * v", "out-of-bounds"),
        ("(y < v)", "(y < v - 1)", "kernel-error"),
        ("range(rows)", "range(rows - 1)", "output-unwritten"),
    ]
    return Case(cross_entropy, [x, y], wanted, "f32", (5, 50), slips, tolerance=1e-5)


def rotary_case():
    x, cos, sin = normal(10, 16), normal(10, 8, dtype=F), normal(11, 8, dtype=F)[:10]
    wide = x.astype(F)
    even, odd = wide[:, ::2], wide[:, 1::2]
    wanted = np.stack([even * cos - odd * sin, odd * cos + even * sin], -1).reshape(10, 16)
    slips = [
        ("(s, d // 2, 2)", "(s, 2, d // 2)", "shape"),
        ("odd * cos + even * sin", "odd * cos - even * sin", WRONG),
        ("cos_ptr, (s, d // 2)", "cos_ptr, (s, d)", "out-of-bounds"),
    ]
    return Case(rotary, [x, cos, sin], wanted, "f32", (10, 16), slips, tolerance=1e-5)


def ring_case():
    x = normal(4 * 4 * 8, dtype=F)
    slips = [
        (
            'tl.recv("W", (c,), "f32")\n        tl.wait(sent)\n    for step',
            'tl.recv("W", (c,), "f32")\n    for step',
            "missing-wait",
        ),
        ('parts[(r - step) % n] = tl.recv("W"', 'parts[(r - step) % n] = tl.recv("E"', "deadlock"),
        ("parts[(r + 1 - step) % n]", "parts[(r - step) % n]", WRONG),
    ]
    return Case(ring_sum, [x], x.reshape(4, -1).sum(0), "f32", (4, 8), slips, 4, "ring", tolerance=1e-5)


def halo_case():
    x = normal(32, 8, dtype=F)
    wide = np.pad(x, ((1, 1), (0, 0)))
    slips = [
        ("if r < n - 1:\n        tl.send", "if r <= n - 1:\n        tl.send", "no-neighbour"),
        ('tl.send("W", x[0:1])', 'tl.send("W", x[0:2])', "message-mismatch"),
        ("if r > 0:\n", "if r > 1:\n", "deadlock"),
    ]
    wanted = (wide[:-2] + wide[1:-1] + wide[2:]) / 3
    return Case(halo, [x], wanted, "f32", (8, 8), slips, 4, split_output=True, tolerance=1e-5)


CASES = [matmul_case, flash_case, paged_case, recurrence_case, cross_entropy_case, rotary_case, ring_case, halo_case]


def launch(case, kernel):
    """The run, its machine, and the largest error."""
    host = mesh.Host("reference", ranks=case.ranks, install=case.install)
    give = host.replicate if case.ranks == 1 else host.shard
    tensors = [give(x) for x in case.inputs]
    out = host.empty(case.wanted.shape, case.dtype, axis=0 if case.split_output else None)
    run = host.launch(kernel, *tensors, out, *case.sizes)
    error = np.abs(run.outputs["o" if "o" in run.outputs else "c"].astype(np.float64) - case.wanted)
    return run, host.machine, error.max() / max(1.0, np.abs(case.wanted).max())


@pytest.mark.parametrize("make", CASES)
def test_it_runs_right_clean_and_timed(make):
    case = make()
    run, machine, error = launch(case, case.kernel)
    assert run.findings == []
    assert error < case.tolerance
    assert retime(run, machine).metrics["time_ps"] > 0


@pytest.mark.parametrize("slip", range(3))
@pytest.mark.parametrize("make", CASES)
def test_a_slip_is_found_at_its_line_or_shows_in_the_numbers(make, slip):
    case = make()
    old, new, kind = case.slips[slip]
    source = dedent(inspect.getsource(case.kernel))
    assert source.count(old) == 1
    changed, file = source.replace(old, new), f"<{case.kernel.__name__} with slip {slip}>"
    linecache.cache[file] = (len(changed), None, changed.splitlines(keepends=True), file)
    names = {}
    exec(compile(changed, file, "exec"), names)
    run, _, error = launch(case, names[case.kernel.__name__])
    if kind == WRONG:
        assert not error < case.tolerance
        return
    finding = next(f for f in run.findings if f.kind == kind)
    assert finding.hint
    if kind not in ("deadlock", "output-unwritten", "missing-wait", "shape"):
        first = source[: source.index(old)].count("\n") + 1
        locations = [finding.where, *(other.where for other in finding.others)]
        assert any(first <= location.line <= first + new.count("\n") for location in locations)
