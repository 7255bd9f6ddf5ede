"""Attention of whole prompts: full and causal, within a window, and linear with a decay."""
# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..case import Work, normal

LOG2_E = 1.4426950408889634


@triton.jit
def flash_kernel(q, k, v, o, scale, keys, CAUSAL: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """A tile of queries over all keys that they see, with the largest score so far."""
    row = tl.program_id(0) * M + tl.arange(0, M)
    column, inner = tl.arange(0, N), tl.arange(0, D)
    base = tl.program_id(1) * keys * D
    query = tl.load(q + base + row[:, None] * D + inner[None, :])
    highest, total = tl.full([M], -float("inf"), tl.float32), tl.zeros([M], tl.float32)
    out = tl.zeros([M, D], tl.float32)
    end = (tl.program_id(0) + 1) * M if CAUSAL else keys
    for first in range(0, end, N):
        there = first + column
        score = tl.dot(query, tl.load(k + base + there[None, :] * D + inner[:, None])) * scale
        if CAUSAL:
            score = tl.where(row[:, None] >= there[None, :], score, -float("inf"))
        higher = tl.maximum(highest, tl.max(score, 1))
        weight, shrunk = tl.exp2(score - higher[:, None]), tl.exp2(highest - higher)
        total = total * shrunk + tl.sum(weight, 1)
        value = tl.load(v + base + there[:, None] * D + inner[None, :])
        out = tl.dot(weight.to(value.dtype), value, out * shrunk[:, None])
        highest = higher
    tl.store(o + base + row[:, None] * D + inner[None, :], (out / total[:, None]).to(o.dtype.element_ty))


def _attended(given: Sequence[torch.Tensor], seen: torch.Tensor | None) -> torch.Tensor:
    q, k, v = (one.float() for one in given)
    score = q @ k.transpose(1, 2) * q.shape[2] ** -0.5
    if seen is not None:
        score = score.masked_fill(~seen, -float("inf"))
    return score.softmax(2) @ v


def flash(heads: int, tokens: int, wide: int, order: str, kind: torch.dtype = torch.float16) -> Work:
    """Flash attention forward, causal or full."""
    host = [normal(heads, tokens, wide, kind=kind, scale=scale) for scale in (1.0, 0.9, 0.8)]
    q, k, v = (one.to("cuda") for one in host)
    o = torch.empty_like(q)
    causal = order == "causal"
    seen = torch.ones(tokens, tokens, dtype=torch.bool).tril() if causal else None
    sizes = {"CAUSAL": causal, "D": wide, "M": 64, "N": 64, "num_stages": 2}
    launch, scale = flash_kernel[tokens // 64, heads], wide**-0.5 * LOG2_E
    return Work(lambda: launch(q, k, v, o, scale, tokens, **sizes), [o], [_attended(host, seen)])


def flash_bf16(heads: int, tokens: int, wide: int, order: str) -> Work:
    """The same in bf16."""
    work = flash(heads, tokens, wide, order, torch.bfloat16)
    return Work(work.launch, work.outputs, work.expected, 3e-2, 2e-2)


@triton.jit
def window_kernel(q, k, v, o, scale, keys, W: tl.constexpr, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """A tile of queries over the last keys before each."""
    row = tl.program_id(0) * M + tl.arange(0, M)
    column, inner = tl.arange(0, N), tl.arange(0, D)
    base = tl.program_id(1) * keys * D
    query = tl.load(q + base + row[:, None] * D + inner[None, :], mask=row[:, None] < keys, other=0.0)
    highest, total = tl.full([M], -1e30, tl.float32), tl.zeros([M], tl.float32)
    out = tl.zeros([M, D], tl.float32)
    begin = tl.maximum(tl.program_id(0) * M - W + 1, 0) // N * N
    for first in range(begin, tl.minimum((tl.program_id(0) + 1) * M, keys), N):
        there = first + column
        key = tl.load(k + base + there[None, :] * D + inner[:, None], mask=there[None, :] < keys, other=0.0)
        away = row[:, None] - there[None, :]
        score = tl.where((away >= 0) & (away < W), tl.dot(query, key) * scale, -1e30)
        higher = tl.maximum(highest, tl.max(score, 1))
        weight, shrunk = tl.exp2(score - higher[:, None]), tl.exp2(highest - higher)
        total = total * shrunk + tl.sum(weight, 1)
        value = tl.load(v + base + there[:, None] * D + inner[None, :], mask=there[:, None] < keys, other=0.0)
        out = out * shrunk[:, None] + tl.dot(weight.to(tl.bfloat16), value)
        highest = higher
    found = (out / total[:, None]).to(tl.bfloat16)
    tl.store(o + base + row[:, None] * D + inner[None, :], found, mask=row[:, None] < keys)


def window(heads: int, tokens: int, wide: int, reach: int) -> Work:
    """Attention to the last `reach` keys, bf16; the number of tokens may be any."""
    host = [normal(heads, tokens, wide, kind=torch.bfloat16, scale=scale) for scale in (1.0, 0.9, 0.8)]
    q, k, v = (one.to("cuda") for one in host)
    o = torch.empty_like(q)
    seen = torch.ones(tokens, tokens, dtype=torch.bool).tril().triu(1 - reach)
    sizes = {"W": reach, "D": wide, "M": 64, "N": 32, "num_stages": 3}
    launch, scale = window_kernel[triton.cdiv(tokens, 64), heads], wide**-0.5 * LOG2_E
    return Work(lambda: launch(q, k, v, o, scale, tokens, **sizes), [o], [_attended(host, seen)], 3e-2, 2e-2)


@triton.jit
def linear_kernel(q, k, v, o, decays, tokens, D: tl.constexpr, V: tl.constexpr, C: tl.constexpr):
    """Some columns of values of a head, chunk by chunk: within the chunk as attention, before it by the state."""
    head, i, inner = tl.program_id(0), tl.arange(0, C), tl.arange(0, D)
    value_at = tl.program_id(1) * V + tl.arange(0, V)
    decay = tl.load(decays + head)
    away = i[:, None] - i[None, :]
    faded = tl.where(away >= 0, tl.exp2(away * decay), 0.0)
    state = tl.zeros([D, V], tl.float32)
    for first in range(0, tokens, C):
        rows = (head * tokens + first + i) * D
        query = tl.load(q + rows[:, None] + inner[None, :])
        key = tl.load(k + rows[:, None] + inner[None, :])
        value = tl.load(v + rows[:, None] + value_at[None, :])
        score = (tl.dot(query, tl.trans(key)) * faded).to(tl.bfloat16)
        out = tl.dot(query, state.to(tl.bfloat16)) * tl.exp2((i + 1) * decay)[:, None]
        out += tl.dot(score, value)
        tl.store(o + rows[:, None] + value_at[None, :], out.to(tl.bfloat16))
        late = (value * tl.exp2((C - 1 - i) * decay)[:, None]).to(tl.bfloat16)
        state = state * tl.exp2(C * decay) + tl.dot(tl.trans(key), late)


def linear(heads: int, tokens: int, wide: int) -> Work:
    """Linear attention with a decay for each head, in chunks of 64, bf16."""
    host = [normal(heads, tokens, wide, kind=torch.bfloat16, scale=scale) for scale in (0.15, 0.14, 1.0)]
    decay = -0.02 - 0.01 * torch.arange(heads, dtype=torch.float32)
    q, k, v = (one.to("cuda") for one in host)
    o, rates = torch.empty_like(q), decay.to("cuda")
    away = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
    faded = torch.where(away >= 0, torch.exp2(away.clamp(min=0) * decay[:, None, None]), 0.0)
    expected = (host[0].float() @ host[1].float().transpose(1, 2) * faded) @ host[2].float()
    launch, sizes = linear_kernel[heads, 2], {"D": wide, "V": wide // 2, "C": 64, "num_stages": 2}
    return Work(lambda: launch(q, k, v, o, rates, tokens, **sizes), [o], [expected], 4e-2, 4e-2)
