"""The operators of `kernbench.torch` on a GPU: time, distance to what memory allows, and what a call costs the host.

    python -m benchmarks.truth.torch_operators [--out FILE.jsonl] [--flush read]

A figure counts only if the output is right: it is compared with float64, or with torch's own attention.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import kernbench.torch as kt

from .peers import FlushedDevice, Row, peer_time, show

# what an H200 reads and writes in a second
MEMORY_BYTES = 4.41e12
HOST_CALLS = 200


@dataclass(frozen=True)
class Problem:
    """A call of an operator: `make` gives it with the bytes that it must move, and a measure of its error."""

    name: str
    make: Callable[[Any], tuple[Callable[[], Any], float, Callable[[], float]]]


def _paged(torch: Any, batch: int, length: int, dtype: Any) -> tuple[Any, ...]:
    pages = -(-length // 16)
    k, v = (torch.randn(batch * pages, 16, 8, 128, device="cuda").to(dtype) for _ in range(2))
    table = torch.randperm(batch * pages, device="cuda").view(batch, pages).to(torch.int32)
    return k, v, table


def _attention(torch: Any, q: Any, k: Any, v: Any) -> Any:
    """Of one sequence and one head, in float64."""
    scores = q.double() @ k.double().T / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v.double()


def decode(batch: int, length: int, narrow: bool) -> Problem:
    """Decode with pages of 16, of 16 bits or of 8."""

    def make(torch: Any) -> tuple[Callable[[], Any], float, Callable[[], float]]:
        k, v, table = _paged(torch, batch, length, torch.float8_e4m3fn if narrow else torch.bfloat16)
        shape = kt.DecodeShape(64, 8, 128, "bf16", kt.PagedCache(16), cache_dtype="e4m3" if narrow else "")
        plan = kt.DecodePlan(shape, [length] * batch)
        q = torch.randn(batch, 64, 128, device="cuda").bfloat16()
        out = torch.zeros_like(q)

        def error() -> float:
            rows = [one[table[-1].long()].flatten(0, 1)[:length, 7] for one in (k, v)]
            return float((out[-1, 63].double() - _attention(torch, q[-1, 63:], *rows)[0]).abs().max())

        return lambda: kt.decode(q, k, v, plan, table=table, out=out), 2 * k.nbytes, error

    return Problem(f"decode {batch} x {length}, pages of 16, {'e4m3' if narrow else 'bf16'}", make)


def paged_prefill(length: int) -> Problem:
    """Prefill of one prompt whose keys lie in pages of 16; the bytes are those of a time at 790 TFLOP/s."""

    def make(torch: Any) -> tuple[Callable[[], Any], float, Callable[[], float]]:
        k, v, table = _paged(torch, 1, length, torch.bfloat16)
        plan = kt.PrefillPlan(kt.PrefillShape(64, 8, 128, "bf16", cache=kt.PagedCache(16)), [length])
        q = torch.randn(length, 64, 128, device="cuda").bfloat16()
        out = torch.zeros_like(q)

        def error() -> float:
            rows = [one[table[0].long()].flatten(0, 1)[:length, 0] for one in (k, v)]
            return float((out[-1, 0].double() - _attention(torch, q[-1:, 0], *rows)[0]).abs().max())

        flops = 2 * length * length * 64 * 128
        return lambda: kt.prefill(q, k, v, plan, table=table, out=out), flops / 790e12 * MEMORY_BYTES, error

    return Problem(f"prefill 1 x {length} causal, pages of 16", make)


def _rule(torch: Any, inputs: tuple[Any, ...], state: Any, head: int) -> tuple[Any, Any]:
    """The gated delta rule of one value head in float64: outputs, and the state behind the last token."""
    q, k, v, g, beta = (one.double() for one in inputs)
    shared = head // (v.shape[1] // q.shape[1])
    state, rows = state.double().clone(), []
    for t in range(len(q)):
        state *= g[t, head].exp()
        state += torch.outer(beta[t, head] * (v[t, head] - state @ k[t, shared]), k[t, shared])
        rows.append(state @ q[t, shared] / math.sqrt(q.shape[2]))
    return torch.stack(rows), state


def _rule_inputs(torch: Any, tokens: int) -> tuple[Any, ...]:
    normal = torch.nn.functional.normalize
    q, k = (normal(torch.randn(tokens, 16, 128, device="cuda"), dim=-1).bfloat16() for _ in range(2))
    v = torch.randn(tokens, 32, 128, device="cuda").bfloat16()
    g = torch.nn.functional.logsigmoid(torch.randn(tokens, 32, device="cuda")) / 16
    return q, k, v, g, torch.rand(tokens, 32, device="cuda")


def delta_rule(batch: int, length: int) -> Problem:
    """The gated delta rule, whole; q, k, v and the output are read or written once."""

    def make(torch: Any) -> tuple[Callable[[], Any], float, Callable[[], float]]:
        inputs = q, k, v, g, beta = _rule_inputs(torch, batch * length)
        plan = kt.GatedDeltaPlan(kt.ForwardShape(16, 32), [length] * batch)
        out = torch.zeros_like(inputs[2])

        def error() -> float:
            few = min(length, 300)
            zero = torch.zeros(128, 128, device="cuda")
            wanted, _ = _rule(torch, tuple(one[:few] for one in inputs), zero, 31)
            return float((out[:few, 31].double() - wanted).abs().max())

        moved = sum(one.nbytes for one in (*inputs, out))
        return lambda: kt.gated_delta_rule(q, k, v, g, beta, plan, out=out), moved, error

    return Problem(f"gated delta rule {batch} x {length}, 16/32 heads", make)


def delta_step(batch: int) -> Problem:
    """One token a sequence; each state is read and written."""

    def make(torch: Any) -> tuple[Callable[[], Any], float, Callable[[], float]]:
        inputs = q, k, v, g, beta = _rule_inputs(torch, batch)
        states = torch.randn(batch, 32, 128, 128, device="cuda") / 8
        slots, out = torch.randperm(batch, device="cuda").to(torch.int32), torch.zeros_like(inputs[2])

        def call() -> Any:
            return kt.gated_delta_step(q, k, v, g, beta, states, slots, out=out)

        def error() -> float:
            before = states[slots[-1].long(), 31].clone()
            call()
            wanted, _ = _rule(torch, tuple(one[-1:] for one in inputs), before, 31)
            return float((out[-1, 31].double() - wanted[0]).abs().max())

        return call, 2 * states.nbytes, error

    return Problem(f"gated delta step, {batch} sequences, 16/32 heads", make)


def append(tokens: int) -> Problem:
    """New keys and values into pages of 16."""

    def make(torch: Any) -> tuple[Callable[[], Any], float, Callable[[], float]]:
        k, v, _ = _paged(torch, 1, 2 * tokens + 16, torch.bfloat16)
        new = torch.randn(2, tokens, 8, 128, device="cuda").bfloat16()
        slots = torch.randperm(k.shape[0] * 16, device="cuda")[:tokens]

        def error() -> float:
            kept = torch.stack([one.flatten(0, 1)[slots] for one in (k, v)])
            return float((kept.double() - new.double()).abs().max())

        k_new, v_new = new
        return lambda: kt.append(k_new, v_new, k, v, slots), 2 * new.nbytes, error

    return Problem(f"append of {tokens} tokens, pages of 16", make)


def merge(tokens: int, count: int) -> Problem:
    """Outputs over parts of the keys become one."""

    def make(torch: Any) -> tuple[Callable[[], Any], float, Callable[[], float]]:
        parts = torch.randn(count, tokens, 64, 128, device="cuda").bfloat16()
        lses, out = torch.randn(count, tokens, 64, device="cuda"), torch.zeros_like(parts[0])

        def error() -> float:
            wanted = (lses.double().softmax(0)[..., None] * parts.double()).sum(0)
            return float((out.double() - wanted).abs().max())

        return lambda: kt.merge(parts, lses, out=out), parts.nbytes + out.nbytes, error

    return Problem(f"merge of {count} parts, {tokens} tokens of 64 heads", make)


PROBLEMS = (
    decode(32, 4096, narrow=False),
    decode(32, 4096, narrow=True),
    decode(128, 16384, narrow=True),
    paged_prefill(8192),
    delta_rule(1, 32768),
    delta_rule(8, 4096),
    delta_step(1),
    delta_step(128),
    append(128),
    append(16384),
    merge(1024, 4),
)


def measured(torch: Any, device: FlushedDevice, problem: Problem) -> Row:
    """A row of the table: microseconds on the GPU and on the host."""
    torch.manual_seed(0)
    call, moved, error = problem.make(torch)
    row: Row = {"ours_us": peer_time(torch, device, call), "limit_us": moved / MEMORY_BYTES * 1e6}
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(HOST_CALLS):
        call()
    row["ours_host_us"] = (time.perf_counter() - begin) / HOST_CALLS * 1e6
    torch.cuda.synchronize()
    row["difference"] = error()
    return row


def distance(name: str, row: Row) -> str:
    """How far a time is from its limit."""
    return f" ({row['limit_us'] / row[name]:.0%} of the limit)" if name == "ours_us" else ""


if __name__ == "__main__":
    show(__doc__, PROBLEMS, measured, distance)
