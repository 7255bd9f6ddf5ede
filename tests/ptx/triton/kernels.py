"""The Triton sources of the PTX beside this file; Triton is needed only to make it anew.

    triton.compile(ASTSource(matmul, signature, {"sak": 1, "sbn": 1, "scn": 1, "BM": 64, "BN": 64, "BK": 32}),
                   target=GPUTarget("cuda", 80, 32))

Pointers and sizes are declared as multiples of 16; debug sections are left out. The attention has D, BM, BN = 64.
"""

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    ap = a + rm[:, None] * sam + rk[None, :] * sak
    bp = b + rk[:, None] * sbk + rn[None, :] * sbn
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(tl.cdiv(K, BK)):
        av = tl.load(ap, mask=rk[None, :] < K - k * BK, other=0.0)
        bv = tl.load(bp, mask=rk[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(av, bv, acc)
        ap += BK * sak
        bp += BK * sbk
    inside = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c + rm[:, None] * scm + rn[None, :] * scn, acc.to(c.dtype.element_ty), mask=inside)


@triton.jit
def attn(q, k, v, o, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    pm, h = tl.program_id(0), tl.program_id(1)
    q += h * T * D
    k += h * T * D
    v += h * T * D
    o += h * T * D
    rm, rd, rn = pm * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    qv = tl.load(q + rm[:, None] * D + rd[None, :], mask=rm[:, None] < T, other=0.0)
    m = tl.full((BM,), -float("inf"), tl.float32)
    l = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for n in range(0, (pm + 1) * BM, BN):
        kv = tl.load(k + (n + rn)[None, :] * D + rd[:, None], mask=(n + rn)[None, :] < T, other=0.0)
        s = tl.dot(qv, kv) * scale
        s = tl.where((rm[:, None] >= (n + rn)[None, :]), s, -float("inf"))
        mn = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - mn[:, None])
        al = tl.exp2(m - mn)
        l = l * al + tl.sum(p, 1)
        acc = acc * al[:, None]
        vv = tl.load(v + (n + rn)[:, None] * D + rd[None, :], mask=(n + rn)[:, None] < T, other=0.0)
        acc = tl.dot(p.to(vv.dtype), vv, acc)
        m = mn
    tl.store(o + rm[:, None] * D + rd[None, :], (acc / l[:, None]).to(o.dtype.element_ty), mask=rm[:, None] < T)
