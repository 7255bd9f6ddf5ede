"""One page more in the running maximum, sum and output of a sequence, on a vector core."""


def update(core, m, l, o, context_lens, running_max, running_sum, out, page, pages, block):
    """The first page begins, later ones rescale, the last divides; without keys the output is zeros."""
    b = core.block_idx
    heads, size = out.shape[1:]
    length = core.read(context_lens, b)
    m_ub, l_ub, max_ub, sum_ub, new_ub, a_ub, b_ub = (
        core.alloc("UB", (heads, 1), "f32", layout="col", name=name)
        for name in ("m", "l", "max", "sum", "new", "a", "b")
    )
    o_ub, out_ub = (core.alloc("UB", (heads, size), "f32", name=name) for name in ("o", "out"))
    if page == 0:
        core.texpands(max_ub, -1e30)
        core.texpands(sum_ub, 0.0)
        core.texpands(out_ub, 0.0)
    else:
        core.tload(max_ub, running_max[b])
        core.tload(sum_ub, running_sum[b])
        core.tload(out_ub, out[b])
    if length > page * block:
        core.tload(m_ub, m[b])
        core.tload(l_ub, l[b])
        core.tload(o_ub, o[b])
    core.set_flag("MTE2", "V", 0)
    core.wait_flag("MTE2", "V", 0)
    if length > page * block:
        core.pipe_barrier("V")
        core.tmax(new_ub, max_ub, m_ub)
        core.pipe_barrier("V")
        core.tsub(a_ub, max_ub, new_ub)
        core.tsub(b_ub, m_ub, new_ub)
        core.pipe_barrier("V")
        core.texp(a_ub, a_ub)
        core.texp(b_ub, b_ub)
        core.tmov(max_ub, new_ub)
        core.pipe_barrier("V")
        core.tmul(sum_ub, sum_ub, a_ub)
        core.tmul(l_ub, l_ub, b_ub)
        core.trowexpandmul(out_ub, out_ub, a_ub)
        core.trowexpandmul(o_ub, o_ub, b_ub)
        core.pipe_barrier("V")
        core.tadd(sum_ub, sum_ub, l_ub)
        core.tadd(out_ub, out_ub, o_ub)
    if page == pages - 1 and length:
        core.pipe_barrier("V")
        core.trowexpanddiv(out_ub, out_ub, sum_ub)
    core.set_flag("V", "MTE3", 0)
    core.wait_flag("V", "MTE3", 0)
    core.tstore(running_max[b], max_ub)
    core.tstore(running_sum[b], sum_ub)
    core.tstore(out[b], out_ub)
    core.pipe_sync()
