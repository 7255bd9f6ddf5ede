"""O = P V of one page, on the cube core."""


def pv(core, p, value_cache, block_table, context_lens, o, page):
    """Values past the context are not loaded; a page past it is not touched."""
    b = core.block_idx
    heads, block = p.shape[1:]
    size = value_cache.shape[2]
    keys = min(block, core.read(context_lens, b) - page * block)
    if keys <= 0:
        return
    p_l1 = core.tile("L1", (heads, block), "bf16", offset=0, valid=(heads, keys), name="p")
    v_l1 = core.tile("L1", (block, size), "bf16", offset=heads * block * 2, valid=(keys, size), name="v")
    p_l0 = core.tile("L0A", (heads, block), "bf16", offset=0, valid=(heads, keys), name="p")
    v_l0 = core.tile("L0B", (block, size), "bf16", offset=0, valid=(keys, size), name="v")
    o_l0 = core.tile("L0C", (heads, size), "f32", offset=0, name="o")
    core.tload(p_l1, p[b, :, :keys])
    core.tload(v_l1, value_cache[core.read(block_table, b, page), :keys])
    core.set_flag("MTE2", "MTE1", 0)
    core.wait_flag("MTE2", "MTE1", 0)
    core.tmov(p_l0, p_l1)
    core.tmov(v_l0, v_l1)
    core.set_flag("MTE1", "M", 0)
    core.wait_flag("MTE1", "M", 0)
    core.tmatmul(o_l0, p_l0, v_l0)
    core.set_flag("M", "FIX", 0)
    core.wait_flag("M", "FIX", 0)
    core.tstore(o[b], o_l0)
    core.pipe_sync()
