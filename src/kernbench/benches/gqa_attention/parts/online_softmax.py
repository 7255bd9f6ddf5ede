"""The online softmax on handles: a running (m, l, o) per query row, kept unnormalised until the end.

m is the largest score seen, l the sum of exp(score - m), o the sum of exp(score - m) * value. Two of them merge by
rescaling both to the larger m; dividing o by l happens once, at the very end. m starts at a large negative *finite*
number while hidden scores are -inf, so exp(score - m) is 0 for them and never exp(-inf + inf).
"""

from typing import TYPE_CHECKING, NamedTuple

from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

LOWEST = -1e30
HIDDEN = float("-inf")


class State(NamedTuple):
    """Running maximum and denominator, [rows, 1] each, and unnormalised output, [rows, d]; all f32."""

    m: TensorHandle
    l: TensorHandle
    o: TensorHandle


def start(tl: "TLContext", rows: int, d_head: int) -> State:
    """The state before any key."""
    return State(tl.full((rows, 1), LOWEST), tl.zeros((rows, 1)), tl.zeros((rows, d_head)))


def fold(
    tl: "TLContext",
    state: State,
    q: TensorHandle,
    k: TensorHandle,
    v: TensorHandle,
    scale: float,
    mask: TensorHandle | None,
) -> State:
    """`state` after the keys `k` and values `v`; reuses the memory of `state`.

    `mask` is None if every query sees every key, else [tokens, keys], repeated over the heads of the query rows.
    """
    return absorb(tl, state, tl.dot(q, tl.trans(k)), v, scale, mask)


def absorb(
    tl: "TLContext", state: State, s: TensorHandle, v: TensorHandle, scale: float, mask: TensorHandle | None
) -> State:
    """`state` after values `v` with scores `s`, not yet scaled; reuses the memory of both."""
    return absorb_keeping(tl, state, s, v, scale, mask)[0]


def absorb_keeping(
    tl: "TLContext", state: State, s: TensorHandle, v: TensorHandle, scale: float, mask: TensorHandle | None
) -> tuple[State, TensorHandle]:
    """Like `absorb`; also returns a handle on the memory of the scores for reuse."""
    if scale <= 0:
        # the maximum of the scores is that of the products only for a positive scale
        s, scale = tl.mul(s, scale, out=s), 1.0
    if mask is not None:
        tokens, keys = mask.shape
        by_head = tl.reshape(s, (-1, tokens, keys))
        s = tl.reshape(tl.where(mask, by_head, HIDDEN, out=by_head), s.shape)
    m = tl.maximum(state.m, tl.max(s, axis=1) * scale)
    p = tl.exp(tl.fma(s, scale, -m, out=s), out=s)
    shrink = tl.exp(state.m - m)
    l = state.l * shrink + tl.sum(p, axis=1)
    o = tl.mul(state.o, shrink, out=state.o)
    weights = tl.cast(p, v.dtype, out=p)
    return State(m, l, tl.dot(weights, v, acc=o, out=o)), weights


def merge(tl: "TLContext", left: State, right: State) -> State:
    """The state of both key sets together; neither is modified."""
    m = tl.maximum(left.m, right.m)
    left_share, right_share = tl.exp(left.m - m), tl.exp(right.m - m)
    l = left.l * left_share + right.l * right_share
    return State(m, l, left.o * left_share + right.o * right_share)


def finish(tl: "TLContext", state: State) -> TensorHandle:
    """The softmax-weighted values; rows that saw no key give zeros."""
    share = 1.0 / tl.where(state.l > 0, state.l, 1.0)
    return tl.mul(state.o, share, out=state.o)
