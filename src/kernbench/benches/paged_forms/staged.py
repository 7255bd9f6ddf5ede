"""Staged paged attention for the npu: four SPMD tasks for each step over the keys, ordered by the tensor map.

QK and PV run on the cube core of a cluster, softmax preparation and the online update on its two vector cores, which
share the rows of a query tile. A block whose sequence has no keys in the step does nothing in it.
"""

from kernbench.benches.paged_forms.shape import Item, Shape, Step, keys_of, padded, step_of
from kernbench.npu import (
    CREATE,
    FIX,
    IN,
    INOUT,
    L0A,
    L0B,
    L0C,
    L1,
    MTE1,
    MTE2,
    MTE3,
    OUT,
    UB,
    KernelCore,
    M,
    Runtime,
    Tensor,
    V,
)

LOWEST = -1e30


def _here(core: KernelCore, shape: Shape, lens: Tensor, number: int) -> tuple[Item, Step]:
    item = shape.item(core.block_idx)
    return item, step_of(shape, number, core.read(lens, item.batch))


def qk(
    core: KernelCore, query: Tensor, keys: Tensor, table: Tensor, lens: Tensor, s: Tensor, shape: Shape, number: int
) -> None:
    """S = Q K^T, summed in f32."""
    item, step = _here(core, shape, lens, number)
    if not step.keys:
        return
    rows, D, columns = padded(shape.rows, 16), shape.D, padded(shape.step, 16)
    q_l1 = core.tile(L1, (rows, D), "bf16", 0, (item.rows, D), name="q")
    k_l1 = core.tile(L1, (D, columns), "bf16", rows * D * 2, (D, step.keys), name="k")
    q_l0 = core.tile(L0A, (rows, D), "bf16", 0, (item.rows, D), name="q")
    k_l0 = core.tile(L0B, (D, columns), "bf16", 0, (D, step.keys), name="k")
    s_l0 = core.tile(L0C, (rows, columns), "f32", 0, (item.rows, step.keys), name="s")
    core.tload(q_l1, query[item.batch, item.first : item.first + item.rows])
    core.tload(k_l1, keys_of(core, keys, table, item, step).T)
    core.set_flag(MTE2, MTE1, 0)
    core.wait_flag(MTE2, MTE1, 0)
    core.tmov(q_l0, q_l1)
    core.tmov(k_l0, k_l1)
    core.set_flag(MTE1, M, 0)
    core.wait_flag(MTE1, M, 0)
    core.tmatmul(s_l0, q_l0, k_l0)
    core.set_flag(M, FIX, 0)
    core.wait_flag(M, FIX, 0)
    core.tstore(s[item.number, : item.rows, : step.keys], s_l0)
    core.pipe_sync()


def softmax(
    core: KernelCore, lens: Tensor, s: Tensor, p: Tensor, m: Tensor, l: Tensor, shape: Shape, number: int
) -> None:
    """m = row maximum of scale S, P = exp(scale S - m) rounded to bf16, l = row sum of the rounded P."""
    item, step = _here(core, shape, lens, number)
    first, count = item.lane(core.sub_block_id, shape.lane_rows)
    if not step.keys or not count:
        return
    rows, columns, valid = shape.lane_rows, padded(shape.step, 16), (count, step.keys)
    vector = padded(rows, 8)
    s_ub = core.alloc(UB, (rows, columns), "f32", valid, name="s")
    p_ub = core.alloc(UB, (rows, columns), "bf16", valid, name="p")
    m_ub = core.alloc(UB, (vector, 1), "f32", (count, 1), "col", name="m")
    l_ub = core.alloc(UB, (vector, 1), "f32", (count, 1), "col", name="l")
    mine = slice(first, first + count)
    narrow = shape.scores != "f32"
    arrived = core.alloc(UB, (rows, columns), shape.scores, valid, name="half") if narrow else s_ub
    core.tload(arrived, s[item.number, mine, : step.keys])
    core.set_flag(MTE2, V, 0)
    core.wait_flag(MTE2, V, 0)
    if narrow:
        core.tcvt(s_ub, arrived)
        core.pipe_barrier(V)
    core.tmuls(s_ub, s_ub, shape.scale)
    core.pipe_barrier(V)
    core.trowmax(m_ub, s_ub)
    core.pipe_barrier(V)
    core.trowexpandsub(s_ub, s_ub, m_ub)
    core.pipe_barrier(V)
    core.texp(s_ub, s_ub)
    core.pipe_barrier(V)
    core.tcvt(p_ub, s_ub)
    core.pipe_barrier(V)
    core.tcvt(s_ub, p_ub)
    core.pipe_barrier(V)
    core.trowsum(l_ub, s_ub)
    core.set_flag(V, MTE3, 0)
    core.wait_flag(V, MTE3, 0)
    core.tstore(p[item.number, mine, : step.keys], p_ub)
    core.tstore(m[item.number, mine], m_ub)
    core.tstore(l[item.number, mine], l_ub)
    core.pipe_sync()


def pv(
    core: KernelCore, values: Tensor, table: Tensor, lens: Tensor, p: Tensor, o: Tensor, shape: Shape, number: int
) -> None:
    """O = P V in f32."""
    item, step = _here(core, shape, lens, number)
    if not step.keys:
        return
    rows, D, columns = padded(shape.rows, 16), shape.D, padded(shape.step, 16)
    p_l1 = core.tile(L1, (rows, columns), "bf16", 0, (item.rows, step.keys), name="p")
    v_l1 = core.tile(L1, (columns, D), "bf16", rows * columns * 2, (step.keys, D), name="v")
    p_l0 = core.tile(L0A, (rows, columns), "bf16", 0, (item.rows, step.keys), name="p")
    v_l0 = core.tile(L0B, (columns, D), "bf16", 0, (step.keys, D), name="v")
    o_l0 = core.tile(L0C, (rows, D), "f32", 0, (item.rows, D), name="o")
    core.tload(p_l1, p[item.number, : item.rows, : step.keys])
    core.tload(v_l1, keys_of(core, values, table, item, step))
    core.set_flag(MTE2, MTE1, 0)
    core.wait_flag(MTE2, MTE1, 0)
    core.tmov(p_l0, p_l1)
    core.tmov(v_l0, v_l1)
    core.set_flag(MTE1, M, 0)
    core.wait_flag(MTE1, M, 0)
    core.tmatmul(o_l0, p_l0, v_l0)
    core.set_flag(M, FIX, 0)
    core.wait_flag(M, FIX, 0)
    core.tstore(o[item.number, : item.rows], o_l0)
    core.pipe_sync()


def begin(core: KernelCore, m_all: Tensor, l_all: Tensor, o_all: Tensor, shape: Shape) -> None:
    """The initial state: m = -1e30, l = 0, o = 0."""
    item = shape.item(core.block_idx)
    first, count = item.lane(core.sub_block_id, shape.lane_rows)
    if not count:
        return
    vector, mine = padded(shape.lane_rows, 8), slice(first, first + count)
    m_ub = core.alloc(UB, (vector, 1), "f32", (count, 1), "col", name="m")
    l_ub = core.alloc(UB, (vector, 1), "f32", (count, 1), "col", name="l")
    o_ub = core.alloc(UB, (shape.lane_rows, shape.D), "f32", (count, shape.D), name="o")
    core.texpands(m_ub, LOWEST)
    core.texpands(l_ub, 0.0)
    core.texpands(o_ub, 0.0)
    core.set_flag(V, MTE3, 0)
    core.wait_flag(V, MTE3, 0)
    core.tstore(m_all[item.number, mine], m_ub)
    core.tstore(l_all[item.number, mine], l_ub)
    core.tstore(o_all[item.number, mine], o_ub)
    core.pipe_sync()


def update(
    core: KernelCore,
    lens: Tensor,
    m: Tensor,
    l: Tensor,
    o: Tensor,
    m_all: Tensor,
    l_all: Tensor,
    o_all: Tensor,
    shape: Shape,
    number: int,
) -> None:
    """m' = max(m', m); l' and o' rescaled and added to."""
    item, step = _here(core, shape, lens, number)
    first, count = item.lane(core.sub_block_id, shape.lane_rows)
    if not step.keys or not count:
        return
    vector, mine, D = padded(shape.lane_rows, 8), slice(first, first + count), shape.D
    m_ub, l_ub, ma_ub, la_ub, mn_ub, a_ub, b_ub = (
        core.alloc(UB, (vector, 1), "f32", (count, 1), "col", name=name)
        for name in ("m", "l", "m_all", "l_all", "m_new", "a", "b")
    )
    o_ub = core.alloc(UB, (shape.lane_rows, D), "f32", (count, D), name="o")
    oa_ub = core.alloc(UB, (shape.lane_rows, D), "f32", (count, D), name="o_all")
    core.tload(m_ub, m[item.number, mine])
    core.tload(l_ub, l[item.number, mine])
    core.tload(o_ub, o[item.number, mine])
    core.tload(ma_ub, m_all[item.number, mine])
    core.tload(la_ub, l_all[item.number, mine])
    core.tload(oa_ub, o_all[item.number, mine])
    core.set_flag(MTE2, V, 0)
    core.wait_flag(MTE2, V, 0)
    core.tmax(mn_ub, ma_ub, m_ub)
    core.pipe_barrier(V)
    core.tsub(a_ub, ma_ub, mn_ub)
    core.tsub(b_ub, m_ub, mn_ub)
    core.pipe_barrier(V)
    core.texp(a_ub, a_ub)
    core.texp(b_ub, b_ub)
    core.pipe_barrier(V)
    core.tmul(la_ub, la_ub, a_ub)
    core.tmul(l_ub, l_ub, b_ub)
    core.trowexpandmul(oa_ub, oa_ub, a_ub)
    core.trowexpandmul(o_ub, o_ub, b_ub)
    core.pipe_barrier(V)
    core.tadd(la_ub, la_ub, l_ub)
    core.tadd(oa_ub, oa_ub, o_ub)
    core.set_flag(V, MTE3, 0)
    core.wait_flag(V, MTE3, 0)
    core.tstore(m_all[item.number, mine], mn_ub)
    core.tstore(l_all[item.number, mine], la_ub)
    core.tstore(o_all[item.number, mine], oa_ub)
    core.pipe_sync()


def divide(core: KernelCore, lens: Tensor, l_all: Tensor, o_all: Tensor, out: Tensor, shape: Shape) -> None:
    """out = o / l, zeros where the context is empty."""
    item = shape.item(core.block_idx)
    first, count = item.lane(core.sub_block_id, shape.lane_rows)
    if not count:
        return
    D, mine = shape.D, slice(first, first + count)
    l_ub = core.alloc(UB, (padded(shape.lane_rows, 8), 1), "f32", (count, 1), "col", name="l")
    o_ub = core.alloc(UB, (shape.lane_rows, D), "f32", (count, D), name="o")
    core.tload(o_ub, o_all[item.number, mine])
    core.tload(l_ub, l_all[item.number, mine])
    core.set_flag(MTE2, V, 0)
    core.wait_flag(MTE2, V, 0)
    if core.read(lens, item.batch) > 0:
        core.trowexpanddiv(o_ub, o_ub, l_ub)
    core.set_flag(V, MTE3, 0)
    core.wait_flag(V, MTE3, 0)
    core.tstore(out[item.batch, item.first + first : item.first + first + count], o_ub)
    core.pipe_sync()


def orchestrate(
    rt: Runtime,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    context_lens: Tensor,
    out: Tensor,
    shape: Shape,
) -> None:
    """Four tasks for each step; the tensors of a step are made in a scope of their own."""
    blocks, rows, D = shape.items, shape.rows, shape.D
    longest = max((int(rt.read(context_lens, b)) for b in range(shape.B)), default=0)
    first = rt.submit(
        aiv=begin,
        args=[CREATE((blocks, rows, 1), "f32", "m_all"), CREATE((blocks, rows, 1), "f32", "l_all"),
              CREATE((blocks, rows, D), "f32", "o_all"), shape],
        block_num=blocks,
    )  # fmt: skip
    m_all, l_all, o_all = first.outputs
    table, lens = IN(block_table), IN(context_lens)
    for number in range(-(-longest // shape.page) * shape.steps_per_page):
        with rt.scope():
            scores = CREATE((blocks, rows, shape.step), shape.scores, "s")
            (s,) = rt.submit(
                aic=qk, args=[IN(query), IN(key_cache), table, lens, scores, shape, number], block_num=blocks
            ).outputs
            p, m, l = rt.submit(
                aiv=softmax,
                args=[lens, IN(s), CREATE((blocks, rows, shape.step), "bf16", "p"),
                      CREATE((blocks, rows, 1), "f32", "m"), CREATE((blocks, rows, 1), "f32", "l"), shape, number],
                block_num=blocks,
            ).outputs  # fmt: skip
            (o,) = rt.submit(
                aic=pv,
                args=[IN(value_cache), table, lens, IN(p), CREATE((blocks, rows, D), "f32", "o"), shape, number],
                block_num=blocks,
            ).outputs
            rt.submit(
                aiv=update,
                args=[lens, IN(m), IN(l), IN(o), INOUT(m_all), INOUT(l_all), INOUT(o_all), shape, number],
                block_num=blocks,
            )
    rt.submit(aiv=divide, args=[lens, IN(l_all), IN(o_all), OUT(out), shape], block_num=blocks)
