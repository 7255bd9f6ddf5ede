"""P = exp(S - m) of one page, its row maxima m and row sums l, on a vector core."""


def softmax(core, scores, context_lens, p, m, l, page, scale):
    """P is rounded to bf16 for the cube; l sums what the cube will see."""
    b = core.block_idx
    heads, block = scores.shape[1:]
    keys = min(block, core.read(context_lens, b) - page * block)
    if keys <= 0:
        return
    s_ub = core.alloc("UB", (heads, block), "f32", valid=(heads, keys), name="s")
    p_ub = core.alloc("UB", (heads, block), "bf16", valid=(heads, keys), name="p")
    m_ub = core.alloc("UB", (heads, 1), "f32", layout="col", name="m")
    l_ub = core.alloc("UB", (heads, 1), "f32", layout="col", name="l")
    core.tload(s_ub, scores[b, :, :keys])
    core.set_flag("MTE2", "V", 0)
    core.wait_flag("MTE2", "V", 0)
    core.tmuls(s_ub, s_ub, scale)
    core.pipe_barrier("V")
    core.trowmax(m_ub, s_ub)
    core.pipe_barrier("V")
    core.trowexpandsub(s_ub, s_ub, m_ub)
    core.pipe_barrier("V")
    core.texp(s_ub, s_ub)
    core.pipe_barrier("V")
    core.tcvt(p_ub, s_ub)
    core.pipe_barrier("V")
    core.tcvt(s_ub, p_ub)
    core.pipe_barrier("V")
    core.trowsum(l_ub, s_ub)
    core.set_flag("V", "MTE3", 0)
    core.wait_flag("V", "MTE3", 0)
    core.tstore(p[b, :, :keys], p_ub)
    core.tstore(m[b], m_ub)
    core.tstore(l[b], l_ub)
    core.pipe_sync()
