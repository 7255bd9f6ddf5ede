"""Four tasks for each page of the longest sequence; a block of a task is one sequence."""

from kernbench.npu import CREATE, IN, INOUT

QK, SOFTMAX, PV, UPDATE = range(4)


def paged_attention(rt, query, key_cache, value_cache, block_table, context_lens, out):
    """Dependences come from the tensor map; each page has a scope of its own."""
    batch, heads, size = query.shape
    block = key_cache.shape[1]
    longest = max(rt.read(context_lens, b) for b in range(batch))
    running = [rt.tensor((batch, heads, 1), "f32", name) for name in ("max", "sum")]
    pages = max(1, -(-longest // block))
    for page in range(pages):
        with rt.scope():
            scores = CREATE((batch, heads, block), "f32", "scores")
            cache = [IN(block_table), IN(context_lens)]
            (s,) = rt.submit(
                aic=QK, args=[IN(query), IN(key_cache), *cache, scores, page], block_num=batch, name="qk"
            ).outputs
            parts = [
                CREATE((batch, heads, n), kind, name)
                for n, kind, name in ((block, "bf16", "p"), (1, "f32", "m"), (1, "f32", "l"))
            ]
            p, m, l = rt.submit(
                aiv0=SOFTMAX, args=[IN(s), IN(context_lens), *parts, page, size**-0.5], block_num=batch, name="softmax"
            ).outputs
            (o,) = rt.submit(
                aic=PV,
                args=[IN(p), IN(value_cache), *cache, CREATE((batch, heads, size), "f32", "o"), page],
                block_num=batch,
                name="pv",
            ).outputs
            state = [INOUT(running[0]), INOUT(running[1]), INOUT(out)]
            rt.submit(
                aiv0=UPDATE,
                args=[IN(m), IN(l), IN(o), IN(context_lens), *state, page, pages, block],
                block_num=batch,
                name="update",
            )
