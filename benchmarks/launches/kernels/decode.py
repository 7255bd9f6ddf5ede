"""Attention of single new tokens: over pages, with latent keys, and with the keys split over programs."""
# mypy: disable-error-code="untyped-decorator,no-untyped-def"

import torch
import triton
import triton.language as tl

from ..case import Work, normal

LOG2_E = 1.4426950408889634
PAGE = 16


@triton.jit
def paged_kernel(q, k, v, o, table, lengths, scale, D: tl.constexpr, GROUP: tl.constexpr, PAGES: tl.constexpr):
    """The heads that share keys, of one sequence; 64 keys at a time, whose pages a table names."""
    sequence, head, heads = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    member, inner, column = tl.arange(0, 16), tl.arange(0, D), tl.arange(0, 64)
    base = ((sequence * heads + head) * GROUP + member[:, None]) * D + inner[None, :]
    query = tl.load(q + base, mask=member[:, None] < GROUP, other=0.0)
    length = tl.load(lengths + sequence)
    highest, total = tl.full([16], -float("inf"), tl.float32), tl.zeros([16], tl.float32)
    out = tl.zeros([16, D], tl.float32)
    for first in range(0, length, 64):
        there = first + column
        page = tl.load(table + sequence * PAGES + there // 16, mask=there < length, other=0)
        at = ((page.to(tl.int64) * 16 + there % 16) * heads + head) * D
        key = tl.load(k + at[None, :] + inner[:, None], mask=there[None, :] < length, other=0.0)
        score = tl.where(there[None, :] < length, tl.dot(query, key) * scale, -float("inf"))
        higher = tl.maximum(highest, tl.max(score, 1))
        weight, shrunk = tl.exp2(score - higher[:, None]), tl.exp2(highest - higher)
        total = total * shrunk + tl.sum(weight, 1)
        value = tl.load(v + at[:, None] + inner[None, :], mask=there[:, None] < length, other=0.0)
        out = out * shrunk[:, None] + tl.dot(weight.to(tl.float16), value)
        highest = higher
    tl.store(o + base, (out / total[:, None]).to(tl.float16), mask=member[:, None] < GROUP)


def paged(sequences: int, keys: int, heads: int, group: int) -> Work:
    """One token of each sequence over its pages of 16 keys, f16, 128 wide; no two sequences are as long."""
    wide, pages = 128, keys // PAGE
    lengths = torch.tensor([keys - 7 * number % (keys // 2) for number in range(sequences)], dtype=torch.int32)
    mixed = torch.Generator().manual_seed(7)
    table = torch.randperm(sequences * pages, generator=mixed).int().view(sequences, pages)
    q = normal(sequences, heads, group, wide, kind=torch.float16)
    k, v = (normal(sequences * pages, PAGE, heads, wide, kind=torch.float16, scale=scale) for scale in (0.9, 0.8))
    given = [one.to("cuda") for one in (q, k, v)]
    out = torch.empty_like(given[0])
    expected = torch.empty(q.shape)
    for number, length in enumerate(lengths.tolist()):
        own_k, own_v = (one[table[number].long()].flatten(0, 1)[:length].transpose(0, 1).float() for one in (k, v))
        score = q[number].float() @ own_k.transpose(1, 2) * wide**-0.5
        expected[number] = score.softmax(2) @ own_v
    where, long = table.to("cuda"), lengths.to("cuda")
    launch, sizes = paged_kernel[sequences, heads], {"D": wide, "GROUP": group, "PAGES": pages, "num_stages": 2}
    return Work(lambda: launch(*given, out, where, long, wide**-0.5 * LOG2_E, **sizes), [out], [expected])


@triton.jit
def latent_kernel(q, cache, o, scale, keys, H: tl.constexpr, N: tl.constexpr):
    """Some heads of one sequence: keys are 512 latent numbers, which are the values too, and 64 turned ones."""
    sequence = tl.program_id(0)
    head = tl.program_id(1) * H + tl.arange(0, H)
    latent, turned, column = tl.arange(0, 512), 512 + tl.arange(0, 64), tl.arange(0, N)
    row = (sequence * tl.num_programs(1) * H + head)[:, None]
    query = tl.load(q + row * 576 + latent[None, :])
    query_turned = tl.load(q + row * 576 + turned[None, :])
    highest, total = tl.full([H], -float("inf"), tl.float32), tl.zeros([H], tl.float32)
    out = tl.zeros([H, 512], tl.float32)
    for first in range(0, keys, N):
        at = (sequence * keys + first + column) * 576
        key = tl.load(cache + at[:, None] + latent[None, :])
        score = tl.dot(query, tl.trans(key))
        score = tl.dot(query_turned, tl.load(cache + at[None, :] + turned[:, None]), score) * scale
        higher = tl.maximum(highest, tl.max(score, 1))
        weight, shrunk = tl.exp2(score - higher[:, None]), tl.exp2(highest - higher)
        total = total * shrunk + tl.sum(weight, 1)
        out = out * shrunk[:, None] + tl.dot(weight.to(tl.bfloat16), key)
        highest = higher
    tl.store(o + row * 512 + latent[None, :], (out / total[:, None]).to(tl.bfloat16))


def latent(sequences: int, keys: int, heads: int) -> Work:
    """One token of each sequence over latent keys (MLA), bf16."""
    q = normal(sequences, heads, 576, kind=torch.bfloat16)
    cache = normal(sequences, keys, 576, kind=torch.bfloat16, scale=0.9)
    given, kept = q.to("cuda"), cache.to("cuda")
    out = torch.empty(sequences, heads, 512, dtype=torch.bfloat16, device="cuda")
    score = q.float() @ cache.float().transpose(1, 2) * 576**-0.5
    expected = score.softmax(2) @ cache[:, :, :512].float()
    many = min(heads, 64)
    launch = latent_kernel[sequences, heads // many]
    sizes = {"H": many, "N": 32, "num_warps": 8 if many == 64 else 4, "num_stages": 2}
    return Work(lambda: launch(given, kept, out, 576**-0.5 * LOG2_E, keys, **sizes), [out], [expected], 3e-2, 2e-2)


@triton.jit
def part_kernel(q, k, v, parts, tops, scale, keys, EACH: tl.constexpr, D: tl.constexpr, N: tl.constexpr):
    """One head and some of its keys, without the tensor cores: the weighted sum, the largest score, the total."""
    head, part = tl.program_id(0), tl.program_id(1)
    inner, column = tl.arange(0, D), tl.arange(0, N)
    query = tl.load(q + head * D + inner).to(tl.float32) * scale
    highest, total = -float("inf"), 0.0
    out = tl.zeros([D], tl.float32)
    for first in range(part * EACH, (part + 1) * EACH, N):
        at = (head * keys + first + column)[:, None] * D + inner[None, :]
        score = tl.sum(tl.load(k + at).to(tl.float32) * query[None, :], 1)
        higher = tl.maximum(highest, tl.max(score, 0))
        weight, shrunk = tl.exp2(score - higher), tl.exp2(highest - higher)
        total = total * shrunk + tl.sum(weight, 0)
        out = out * shrunk + tl.sum(tl.load(v + at).to(tl.float32) * weight[:, None], 0)
        highest = higher
    number = head * tl.num_programs(1) + part
    tl.store(parts + number * D + inner, out)
    tl.store(tops + number * 2, highest)
    tl.store(tops + number * 2 + 1, total)


@triton.jit
def join_kernel(parts, tops, o, P: tl.constexpr, D: tl.constexpr):
    """One head: its parts weighted by their largest scores."""
    head, part, inner = tl.program_id(0), tl.arange(0, P), tl.arange(0, D)
    number = head * P + part
    top, total = tl.load(tops + number * 2), tl.load(tops + number * 2 + 1)
    weight = tl.exp2(top - tl.max(top, 0))
    out = tl.sum(tl.load(parts + number[:, None] * D + inner[None, :]) * weight[:, None], 0)
    tl.store(o + head * D + inner, (out / tl.sum(total * weight, 0)).to(tl.float16))


def split(heads: int, keys: int, parts: int) -> Work:
    """One token with the keys of each head split over programs, f16, 128 wide; a second kernel joins them."""
    wide, each = 128, keys // parts
    q = normal(heads, 1, wide, kind=torch.float16)
    k, v = (normal(heads, keys, wide, kind=torch.float16, scale=scale) for scale in (0.9, 0.8))
    given = [one.to("cuda") for one in (q, k, v)]
    sums, tops = torch.empty(heads, parts, wide, device="cuda"), torch.empty(heads, parts, 2, device="cuda")
    out = torch.empty_like(given[0])
    score = q.float() @ k.float().transpose(1, 2) * wide**-0.5

    def launch() -> None:
        sizes = {"EACH": each, "D": wide, "N": 32}
        part_kernel[heads, parts](*given, sums, tops, wide**-0.5 * LOG2_E, keys, **sizes)
        join_kernel[heads,](sums, tops, out, P=parts, D=wide)

    return Work(launch, [out], [score.softmax(2) @ v.float()], 1e-2, 2e-3)
