"""S = Q K^T of one page, on the cube core."""


def qk(core, query, key_cache, block_table, context_lens, scores, page):
    """Keys past the context are not loaded; a page past it is not touched."""
    b = core.block_idx
    heads, size = query.shape[1:]
    block = key_cache.shape[1]
    keys = min(block, core.read(context_lens, b) - page * block)
    if keys <= 0:
        return
    q_l1 = core.tile("L1", (heads, size), "bf16", offset=0, name="q")
    k_l1 = core.tile("L1", (size, block), "bf16", offset=heads * size * 2, valid=(size, keys), name="k")
    q_l0 = core.tile("L0A", (heads, size), "bf16", offset=0, name="q")
    k_l0 = core.tile("L0B", (size, block), "bf16", offset=0, valid=(size, keys), name="k")
    s_l0 = core.tile("L0C", (heads, block), "f32", offset=0, valid=(heads, keys), name="s")
    core.tload(q_l1, query[b])
    core.tload(k_l1, key_cache[core.read(block_table, b, page), :keys].T)
    core.set_flag("MTE2", "MTE1", 0)
    core.wait_flag("MTE2", "MTE1", 0)
    core.tmov(q_l0, q_l1)
    core.tmov(k_l0, k_l1)
    core.set_flag("MTE1", "M", 0)
    core.wait_flag("MTE1", "M", 0)
    core.tmatmul(s_l0, q_l0, k_l0)
    core.set_flag("M", "FIX", 0)
    core.wait_flag("M", "FIX", 0)
    core.tstore(scores[b, :, :keys], s_l0)
    core.pipe_sync()
