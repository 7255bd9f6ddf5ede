"""The attention kernels by their fixed names, recorded and launched; published faults are rejected."""

import itertools

import numpy as np
import pytest

from kernbench import mesh
from kernbench.bench import find, run_bench
from kernbench.benches._attention_mesh_kv import attention_mesh_kv_kernel
from kernbench.benches._attention_mesh_mlo import attention_mesh_mlo_kernel
from kernbench.benches.gqa_attention.parts import ring_kv
from kernbench.benches.gqa_attention.parts.online_softmax import State
from kernbench.common.dtypes import DTYPES
from kernbench.common.ipcq_types import IpcqRecvCmd, IpcqSendCmd
from kernbench.common.pe_commands import GemmCmd, TensorHandle
from kernbench.golden import attention, compare
from kernbench.triton_emu.tl_context import TLContext, run_kernel

POINTERS = (0x1000, 0x2000, 0x3000, 0x4000)


def record(kernel, rank, n_ranks, rank_axis=0, pe_id=None, heads=(2, 1)):
    ids = {"pe_id": rank, "cube_id": 0} if rank_axis == 0 else {"pe_id": pe_id or 0, "cube_id": rank}
    tl = TLContext(**ids, num_programs=8, num_cubes=16, dispatch_cycles=0, scratch_base=1 << 20, scratch_size=1 << 20)
    run_kernel(kernel, tl, *POINTERS, 16, 16, *heads, 64, n_ranks, rank_axis)
    return tl.commands


@pytest.mark.parametrize("kernel", [attention_mesh_kv_kernel, attention_mesh_mlo_kernel])
@pytest.mark.parametrize("rank_axis", [0, 1])
@pytest.mark.parametrize("n_ranks", [1, 2, 5])
def test_recorded_messages_match_between_neighbours(kernel, rank_axis, n_ranks):
    streams = [record(kernel, r, n_ranks, rank_axis) for r in range(n_ranks)]
    for west, east in itertools.pairwise(streams):
        for sender, receiver, there, back in ((west, east, "E", "W"), (east, west, "W", "E")):
            sent = [c.src.shape for c in sender if isinstance(c, IpcqSendCmd) and c.direction == there]
            got = [c.out.shape for c in receiver if isinstance(c, IpcqRecvCmd) and c.direction == back]
            assert sent == got
            assert sent
    assert not any(isinstance(c, IpcqSendCmd) and c.direction == "W" for c in streams[0])
    assert not any(isinstance(c, IpcqSendCmd) and c.direction == "E" for c in streams[-1])


def test_prefill_folds_every_chunk_once():
    for rank in range(4):
        commands = record(attention_mesh_kv_kernel, rank, 4)
        assert sum(isinstance(c, GemmCmd) for c in commands) == 2 * 4
        assert sum(isinstance(c, IpcqRecvCmd) for c in commands) == 2 * 3


def test_decode_computes_once_and_receives_every_partial():
    for rank in range(4):
        commands = record(attention_mesh_mlo_kernel, rank, 4)
        assert sum(isinstance(c, GemmCmd) for c in commands) == 2
        assert sum(isinstance(c, IpcqRecvCmd) for c in commands) == 2 * 3


@pytest.mark.parametrize("kernel", [attention_mesh_kv_kernel, attention_mesh_mlo_kernel])
def test_other_pes_of_a_cube_return_at_once(kernel):
    assert record(kernel, 1, 4, rank_axis=1, pe_id=3) == []


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("rank_axis", [0, 1])
def test_positional_launch_without_options(dtype, rank_axis):
    n, s, h_q, h_kv, d = 4, 16, 8, 2, 64
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((n * s, h, d)).astype(DTYPES[dtype].numpy) for h in (h_q, h_kv, h_kv))
    host = mesh.Host("reference", ranks=n, rank_axis=rank_axis)
    tensors = [host.shard(q.reshape(n * s, h_q * d)), host.shard(k), host.shard(v)]
    o = host.empty((n * s, h_q * d), dtype, axis=0)
    run = host.launch(attention_mesh_kv_kernel, *tensors, o, s, s, h_q, h_kv, d, n, rank_axis)
    assert run.safe
    assert compare(host.gather(o).reshape(q.shape), attention(q, k, v)).passed


def faulty_ring(q_ptr, k_ptr, v_ptr, o_ptr, S, d, n_ranks, *, transpose, unnormalised, scale, tl):
    """A one-head K/V ring as it was once published, each fault switchable: K is reshaped where it must be transposed,
    partials are normalised by softmax before they are merged and divided again, and the scale is missing."""
    rank = tl.program_id(0)
    q = tl.load(q_ptr, shape=(S, d))
    k, v = tl.load(k_ptr, shape=(S, d)), tl.load(v_ptr, shape=(S, d))

    def partial(k, v):
        if transpose:
            k_t = tl.trans(k)
        else:
            k_t = TensorHandle(id="kT", addr=k.addr, shape=(d, S), dtype=k.dtype, nbytes=k.nbytes, space=k.space)
        s = tl.dot(q, k_t) * (d**-0.5 if scale else 1.0)
        m = tl.max(s, axis=1)
        l = tl.sum(tl.exp(s - m), axis=1)
        p = tl.exp(s - m) if unnormalised else tl.softmax(s, axis=1)
        return m, l, tl.dot(p, v)

    m, l, o = partial(k, v)
    for step in range(1, n_ranks):
        if rank < n_ranks - 1 and rank - step + 1 >= 0:
            tl.send(dir="E", src=k)
            tl.send(dir="E", src=v)
        if rank - step < 0:
            continue
        k, v = (tl.recv(dir="W", shape=(S, d), dtype=k.dtype) for _ in range(2))
        m2, l2, o2 = partial(k, v)
        new = tl.maximum(m, m2)
        a, b = tl.exp(m - new), tl.exp(m2 - new)
        m, l, o = new, l * a + l2 * b, o * a + o2 * b
    tl.store(o_ptr, o / l)


def run_faulty(n=3, s=16, d=32, **faults):
    """Rank i attends to the keys of ranks 0..i."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((n * s, 1, d)).astype(np.float32) for _ in range(3))
    host = mesh.Host("reference", ranks=n)
    tensors = [host.shard(x.reshape(n * s, d)) for x in (q, k, v)]
    o = host.empty((n * s, d), "f32", axis=0)
    run = host.launch(
        faulty_ring, *tensors, o, s, d, n, **{"transpose": True, "unnormalised": True, "scale": True} | faults
    )
    assert run.safe, run.findings
    expected = np.concatenate(
        [attention(q[r * s : (r + 1) * s], k[: (r + 1) * s], v[: (r + 1) * s]).expected for r in range(n)]
    )
    return compare(host.gather(o).reshape(n * s, 1, d), expected, name="o", rank_axis=0, ranks=n, reduction=n * s)


def test_the_repaired_ring_is_right():
    assert run_faulty().passed


@pytest.mark.parametrize("fault", ["transpose", "unnormalised", "scale"])
def test_published_faults_are_rejected_with_rank_and_row(fault):
    verdict = run_faulty(**{fault: False})
    assert not verdict.passed
    assert verdict.worst_rank is not None
    assert f"rank {verdict.worst_rank}, row {verdict.worst_row}" in verdict.reason
    assert not any(r.passed for r in verdict.ranks)


def test_a_softmax_without_its_maximum_is_rejected_by_the_milestone(monkeypatch):
    def careless(tl, state, q, k, v, scale, mask):
        s = tl.dot(q, tl.trans(k)) * scale
        p = tl.exp(s)
        return State(state.m, state.l + tl.sum(p, axis=1), tl.dot(p.to(v.dtype), v, acc=state.o))

    monkeypatch.setattr(ring_kv, "fold", careless)
    small = {"context": 64, "causal": False, "h_q": 8, "h_kv": 2}
    run = run_bench(find("milestone_gqa_llama70b"), "single_user_prefill", small)
    assert run.right is False
