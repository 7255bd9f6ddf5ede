"""Attention that torch has for GPUs alone (`_flash_attention_forward` and its kin), computed in float32 by definition.

`scaled_dot_product_attention` reaches none of these on a CPU build; programs call them directly, for the logsumexp, and
so do files that Inductor has written. What is not computed here (dropout, paged keys) is refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import torch

# the efficient kernels' numbers for causal masks: queries begin with the keys, or end with them
_FROM_TOP_LEFT, _FROM_BOTTOM_RIGHT = 1, 2
# they leave room for whole blocks of queries in the logsumexp
_ROWS = 32
_REFUSED = ("dropout_p", "seqused_k", "seqlen_k", "alibi_slopes", "block_table")


@dataclass(frozen=True)
class Form:
    """What a query sees: keys from `left` before it to `right` after it (None: all), with scores times `scale`.

    Query `i` is at key `i`, or, with `ends_together`, the last query at the last key.
    """

    scale: float | None
    left: int | None = None
    right: int | None = None
    ends_together: bool = False

    def scores(self, q: torch.Tensor, k: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """Scores of queries [..., m, d] and keys [..., n, d]; -inf for what is not seen."""
        scores = q @ k.transpose(-1, -2) * self.factor(q)
        if bias is not None:
            scores = scores + bias.float()
        m, n = scores.shape[-2:]
        at = torch.arange(m)[:, None] + (n - m if self.ends_together else 0)
        key, seen = torch.arange(n), torch.ones((m, n), dtype=torch.bool)
        if self.left is not None and self.left >= 0:
            seen &= key >= at - self.left
        if self.right is not None and self.right >= 0:
            seen &= key <= at + self.right
        return scores.masked_fill(~seen, -torch.inf)

    def factor(self, q: torch.Tensor) -> float:
        """What scores are multiplied by."""
        return self.scale if self.scale is not None else float(q.shape[-1]) ** -0.5


def _shared(heads: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Keys or values in float32, with one head for each head of the queries [..., heads, m, d]."""
    return heads.float().repeat_interleave(q.shape[-3] // heads.shape[-3], dim=-3)


def _weights(scores: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Softmax; zeros where a query sees nothing."""
    return torch.exp(scores - total.masked_fill(total == -torch.inf, 0.0)[..., None])


def _forward(
    given: tuple[torch.Tensor, ...], form: Form, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and logsumexp of queries, keys and values [..., heads, m, d]."""
    q, k, v = given
    scores = form.scores(q.float(), _shared(k, q), bias)
    total = torch.logsumexp(scores, -1)
    return (_weights(scores, total) @ _shared(v, q)).to(q.dtype), total


def _backward(inputs: tuple[torch.Tensor, ...], form: Form, bias: torch.Tensor | None = None) -> list[torch.Tensor]:
    """Gradients of queries, keys, values and scores, of the output's gradient, queries, keys and values."""
    do, q, k, v = inputs
    wide, keys, values, given = q.float(), _shared(k, q), _shared(v, q), do.float()
    scores = form.scores(wide, keys, bias)
    weights = _weights(scores, torch.logsumexp(scores, -1))
    of_weights = given @ values.transpose(-1, -2)
    of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True))
    factor = form.factor(q)
    dk, dv = of_scores.transpose(-1, -2) @ wide * factor, weights.transpose(-1, -2) @ given
    dk, dv = (one.unflatten(-3, (heads.shape[-3], -1)).sum(-3) for one, heads in ((dk, k), (dv, v)))
    return [(of_scores @ keys * factor).to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), of_scores]


def _require(name: str, given: SimpleNamespace) -> None:
    """Refuse what is not computed here."""
    wanted = [f"{one}={value}" for one in _REFUSED if (value := getattr(given, one, None)) not in (None, 0.0)]
    if wanted:
        raise NotImplementedError(f"{name} with {', '.join(wanted)} is not emulated: leave that out here")
    if "flash" in name and given.query.dtype not in (torch.float16, torch.bfloat16):
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")


def _seed() -> torch.Tensor:
    return torch.zeros(2, dtype=torch.uint64)


def _number() -> torch.Tensor:
    return torch.zeros((), dtype=torch.int64)


def _padded(total: torch.Tensor, wanted: bool) -> torch.Tensor:
    """The logsumexp as the efficient kernels leave it: rows up to a whole block, of infinity."""
    if not wanted:
        return total.new_empty((*total.shape[:-1], 0))
    return torch.nn.functional.pad(total, (0, -total.shape[-1] % _ROWS), value=torch.inf)


def _heads_first(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """[..., heads, m, d] of [..., m, heads, d], and back."""
    return tuple(one.transpose(-2, -3) for one in tensors)


def _three(given: SimpleNamespace) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return given.query, given.key, given.value


def _parts(
    q: torch.Tensor, k: torch.Tensor, of_q: torch.Tensor, of_k: torch.Tensor | None
) -> Iterator[tuple[slice, slice]]:
    """The rows of each sequence among those of queries and of keys, where sequences are packed one behind another."""
    starts_q = of_q.tolist()
    starts_k = [0, k.shape[0]] if of_k is None else of_k.tolist()
    for number in range(len(starts_q) - 1):
        yield slice(*starts_q[number : number + 2]), slice(*starts_k[number : number + 2])


def _of_bias(scores: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
    return None if bias is None else scores.sum_to_size(bias.shape).to(bias.dtype)


def _causal(given: SimpleNamespace, *, ends_together: bool = False) -> Form:
    return Form(given.scale, right=0 if given.is_causal else None, ends_together=ends_together)


def _flash(given: SimpleNamespace) -> tuple[object, ...]:
    """`_scaled_dot_product_flash_attention`."""
    out, total = _forward(_three(given), _causal(given, ends_together=True))
    longest = given.query.shape[2], given.key.shape[2]
    return out, total, None, None, *longest, _seed(), _number(), given.query.new_empty(0)


def _flash_backward(given: SimpleNamespace) -> tuple[object, ...]:
    return tuple(_backward((given.grad_out, *_three(given)), _causal(given, ends_together=True))[:3])


def _efficient(given: SimpleNamespace) -> tuple[object, ...]:
    """`_scaled_dot_product_efficient_attention`."""
    out, total = _forward(_three(given), _causal(given), given.attn_bias)
    return out, _padded(total, given.compute_log_sumexp), _number(), _number()


def _efficient_backward(given: SimpleNamespace) -> tuple[object, ...]:
    *three, scores = _backward((given.grad_out_, *_three(given)), _causal(given), given.attn_bias)
    return *three, _of_bias(scores, given.attn_bias) if given.grad_input_mask[3] else None


def _cudnn(given: SimpleNamespace) -> tuple[object, ...]:
    """`_scaled_dot_product_cudnn_attention`."""
    out, total = _forward(_three(given), _causal(given), given.attn_bias)
    longest = given.query.shape[2], given.key.shape[2]
    return out, total[..., None], None, None, *longest, _number(), _number(), None


def _cudnn_backward(given: SimpleNamespace) -> tuple[object, ...]:
    return tuple(_backward((given.grad_out, *_three(given)), _causal(given), given.attn_bias)[:3])


def _window(given: SimpleNamespace) -> Form:
    right = 0 if given.is_causal else given.window_size_right
    return Form(given.scale, given.window_size_left, right, ends_together=True)


def _flash_rows(given: SimpleNamespace) -> tuple[object, ...]:
    """`_flash_attention_forward`: heads behind rows, or sequences packed one behind another."""
    q, k, v = _three(given)
    rest = _seed(), _number(), q.new_empty(0)
    if given.cum_seq_q is None:
        out, total = _forward(_heads_first(q, k, v), _window(given))
        return out.transpose(1, 2), total, *rest
    out, total = torch.zeros_like(q), q.new_zeros((q.shape[1], q.shape[0]), dtype=torch.float32)
    for rows, keys in _parts(q, k, given.cum_seq_q, given.cum_seq_k):
        part, sums = _forward(_heads_first(q[rows], k[keys], v[keys]), _window(given))
        out[rows], total[:, rows] = part.transpose(0, 1), sums
    return out, total, *rest


def _flash_rows_backward(given: SimpleNamespace) -> tuple[object, ...]:
    q, k, v = _three(given)
    if given.cum_seq_q is None or given.cum_seq_q.numel() == 0:
        return tuple(_heads_first(*_backward(_heads_first(given.grad_out, q, k, v), _window(given))[:3]))
    made = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for rows, keys in _parts(q, k, given.cum_seq_q, given.cum_seq_k):
        found = _backward(_heads_first(given.grad_out[rows], q[rows], k[keys], v[keys]), _window(given))
        for whole, part, at in zip(made, found, (rows, keys, keys), strict=False):
            whole[at] = part.transpose(0, 1)
    return made


def _masked(given: SimpleNamespace) -> Form:
    causal = given.custom_mask_type in (_FROM_TOP_LEFT, _FROM_BOTTOM_RIGHT)
    left = given.window_size - 1 if getattr(given, "window_size", None) else None
    ends_together = given.custom_mask_type == _FROM_BOTTOM_RIGHT
    return Form(given.scale, left, 0 if causal else None, ends_together=ends_together)


def _efficient_rows(given: SimpleNamespace) -> tuple[object, ...]:
    """`_efficient_attention_forward`: heads behind rows; packed sequences are in a batch of one."""
    q, k, v = _three(given)
    wanted, rest = given.compute_log_sumexp, (_number(), _number())
    if given.cu_seqlens_q is None:
        out, total = _forward(_heads_first(q, k, v), _masked(given), given.bias)
        return out.transpose(1, 2), _padded(total, wanted), *rest, q.shape[1], k.shape[1]
    if given.bias is not None:
        raise NotImplementedError("_efficient_attention_forward of packed sequences with a bias is not emulated")
    parts = list(_parts(q[0], k[0], given.cu_seqlens_q, given.cu_seqlens_k))
    room = given.max_seqlen_q or max(rows.stop - rows.start for rows, _ in parts)
    out = q.new_zeros((*q.shape[:-1], v.shape[-1]))
    total = q.new_full((len(parts), q.shape[2], room), torch.inf, dtype=torch.float32)
    for number, (rows, keys) in enumerate(parts):
        part, sums = _forward(_heads_first(q[0, rows], k[0, keys], v[0, keys]), _masked(given))
        out[0, rows], total[number, :, : sums.shape[-1]] = part.transpose(0, 1), sums
    return out, _padded(total, wanted), *rest, room, given.max_seqlen_k or k.shape[1]


def _efficient_rows_backward(given: SimpleNamespace) -> tuple[object, ...]:
    if given.cu_seqlens_q is not None:
        raise NotImplementedError("_efficient_attention_backward of packed sequences is not emulated")
    *three, scores = _backward(_heads_first(given.grad_out_, *_three(given)), _masked(given), given.bias)
    return *_heads_first(*three), _of_bias(scores, given.bias) if given.bias_requires_grad else None


_OPERATORS = {
    "_scaled_dot_product_flash_attention": _flash,
    "_scaled_dot_product_flash_attention_backward": _flash_backward,
    "_scaled_dot_product_efficient_attention": _efficient,
    "_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "_scaled_dot_product_cudnn_attention": _cudnn,
    "_scaled_dot_product_cudnn_attention_backward": _cudnn_backward,
    "_flash_attention_forward": _flash_rows,
    "_flash_attention_backward": _flash_rows_backward,
    "_efficient_attention_forward": _efficient_rows,
    "_efficient_attention_backward": _efficient_rows_backward,
}


def attends(name: str) -> bool:
    """Whether an operator of torch is one of these."""
    return name in _OPERATORS


def attend(name: str, given: SimpleNamespace) -> tuple[object, ...]:
    """The results of an operator, for all its parameters by name."""
    _require(name, given)
    return _OPERATORS[name](given)
