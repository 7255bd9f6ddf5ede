"""Operators that torch has for GPUs alone, or for more element types there."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
pytestmark = pytest.mark.filterwarnings("ignore")
aten = torch.ops.aten


@pytest.fixture(autouse=True)
def session(emulated):
    return emulated()


def drawn(*shape, dtype=torch.float16):
    return torch.randn(shape, device="cuda").to(dtype)


def attention(q, k, v, seen=None, bias=None, scale=None):
    """The definition, in float64: output and logsumexp of [..., heads, m, d]."""
    q, k, v = q.double(), *(one.double().repeat_interleave(q.shape[-3] // one.shape[-3], dim=-3) for one in (k, v))
    scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5) + (0 if bias is None else bias.double())
    scores = scores if seen is None else scores.masked_fill(~seen, -torch.inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


def below(m, n, by=0):
    return torch.ones(m, n, dtype=torch.bool, device="cuda").tril(by)


def close(found, wanted, by=2e-3):
    assert found.is_cuda
    torch.testing.assert_close(found.double(), wanted, rtol=by, atol=by)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_histograms_of_integers(dtype):
    x = torch.tensor([0, 1, 1, 4, 9, 10, 200], device="cuda").to(dtype)
    found = torch.histc(x, bins=5, min=0, max=10)
    assert (found.tolist(), found.dtype, found.is_cuda) == ([3, 0, 1, 0, 2], dtype, True)
    # without bounds, those of the values; of one value, with its neighbours
    assert torch.histc(x, bins=4).tolist() == [6, 0, 0, 1]
    assert torch.histc(x[1:3], bins=3, min=0, max=0).tolist() == [0, 2, 0]
    out = torch.empty(0, dtype=dtype, device="cuda")
    assert torch.histc(x, bins=2, min=0, max=10, out=out) is out
    assert out.tolist() == [4, 2]
    with pytest.raises(NotImplementedError):
        torch.histc(x.cpu())


@pytest.mark.parametrize("backend", ["MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"])
def test_attention_by_each_backend_that_a_program_chooses(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (drawn(2, 4, 9, 16).requires_grad_() for _ in range(3))
    with sdpa_kernel(getattr(SDPBackend, backend)):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, value=v, is_causal=True)
        chosen = torch._C._get_math_sdp_enabled()
    wanted, _ = attention(q, k, v, below(9, 9))
    close(out, wanted)
    assert chosen == (backend == "MATH")
    given = torch.randn_like(out)
    for found, right in zip(
        torch.autograd.grad(out, (q, k, v), given), torch.autograd.grad(wanted, (q, k, v), given.double()), strict=True
    ):
        close(found, right.double(), 1e-2)


def test_a_backend_that_does_not_take_the_tensors_is_refused_as_on_a_gpu():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = drawn(2, 4, 9, 16, dtype=torch.float32)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), pytest.raises(RuntimeError, match="No viable backend"):
        torch.nn.functional.scaled_dot_product_attention(q, q, q)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        close(
            torch.nn.functional.scaled_dot_product_attention(q, q, q, below(9, 9)), attention(q, q, q, below(9, 9))[0]
        )
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION), pytest.raises(RuntimeError, match="No viable backend"):
        torch.nn.functional.scaled_dot_product_attention(q.cpu(), q.cpu(), q.cpu())


@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_called_directly(causal):
    """More keys than queries, which end together; fewer heads of keys."""
    q, k, v = drawn(2, 4, 5, 16), drawn(2, 2, 9, 16), drawn(2, 2, 9, 16)
    q.requires_grad_()
    out, total, *rest = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=0.3)
    wanted, sums = attention(q, k, v, below(5, 9, 4) if causal else None, scale=0.3)
    close(out, wanted)
    close(total, sums)
    assert (rest[0], rest[1], rest[2:4]) == (None, None, [5, 9])
    given = torch.randn_like(out)
    (found,) = torch.autograd.grad(out, q, given)
    (of_q,) = torch.autograd.grad(wanted, q, given.double())
    close(found, of_q.double(), 1e-2)
    with pytest.raises(RuntimeError, match="fp16 and bf16"):
        aten._scaled_dot_product_flash_attention(q.float(), k.float(), v.float())
    with pytest.raises(NotImplementedError, match="dropout_p"):
        aten._scaled_dot_product_flash_attention(q, k, v, 0.5)


def test_flash_attention_of_packed_sequences():
    q, k, v = (drawn(7, 2, 8) for _ in range(3))
    starts = torch.tensor([0, 3, 7], dtype=torch.int32, device="cuda")
    out, total, *rest = aten._flash_attention_forward(q, k, v, starts, starts, 4, 4, 0.0, True, False)
    gradients = aten._flash_attention_backward(
        torch.ones_like(out), q, k, v, out, total, starts, starts, 4, 4, 0.0, True, *rest[:2]
    )
    for first, last in ((0, 3), (3, 7)):
        parts = [one[first:last].transpose(0, 1).double().requires_grad_() for one in (q, k, v)]
        wanted, sums = attention(*parts, below(last - first, last - first))
        close(out[first:last].transpose(0, 1), wanted)
        close(total[:, first:last], sums)
        for found, of_it in zip(gradients, torch.autograd.grad(wanted.sum(), parts), strict=True):
            close(found[first:last].transpose(0, 1), of_it, 1e-2)
    dense, *_ = aten._flash_attention_forward(
        q[None], k[None], v[None], None, None, 7, 7, 0.0, False, False, window_size_left=1, window_size_right=0
    )
    close(
        dense[0].transpose(0, 1),
        attention(*(one.transpose(0, 1) for one in (q, k, v)), below(7, 7) & ~below(7, 7, -2))[0],
    )


def test_efficient_attention_called_directly():
    q, k, v = (drawn(1, 2, 5, 8, dtype=torch.float32).requires_grad_() for _ in range(3))
    bias = drawn(1, 2, 5, 5, dtype=torch.float32).requires_grad_()
    out, total, *_ = aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, 0.0, True)
    wanted, sums = attention(q, k, v, below(5, 5), bias)
    close(out, wanted)
    # whole blocks of 32 queries
    assert total.shape == (1, 2, 32)
    close(total[..., :5], sums)
    given = torch.randn_like(out)
    for found, of_it in zip(
        torch.autograd.grad(out, (q, k, v, bias), given),
        torch.autograd.grad(wanted, (q, k, v, bias), given.double()),
        strict=True,
    ):
        close(found, of_it.double())
    for kind, by in ((0, 9), (1, 0), (2, 4)):
        turned = [one.transpose(1, 2) for one in (q, torch.cat([k, v[:, :, :4]], 2), torch.cat([v, k[:, :, :4]], 2))]
        out, *_ = aten._efficient_attention_forward(*turned, None, None, None, None, None, 0.0, kind, True)
        close(out.transpose(1, 2), attention(*(one.transpose(1, 2) for one in turned), below(5, 9, by))[0])


def test_cudnn_attention_called_directly():
    q, k, v = (drawn(1, 2, 5, 8) for _ in range(3))
    out, total, *_ = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True)
    wanted, sums = attention(q, k, v, below(5, 5))
    close(out, wanted)
    close(total[..., 0], sums)


@pytest.mark.parametrize("inner", [2, 4, 8])
def test_weights_packed_to_four_bits(inner):
    n, k, group = 16, 256, 32
    weights = torch.randint(0, 16, (n, k), device="cuda")
    given = (weights[:, ::2] << 4 | weights[:, 1::2]).to(torch.uint8)
    packed = aten._convert_weight_to_int4pack(given, inner)
    assert (packed.shape, packed.dtype) == ((n // 8, k // (16 * inner), 32, inner // 2), torch.int32)
    # the first lane has row 0 and columns 0, 1, 8, 9 of two tiles: even elements in the lower half of a word
    row = weights[0].tolist()
    wanted = [row[column] for column in (0, 8, 16, 24, 1, 9, 17, 25)]
    assert [int(packed[0, 0, 0, 0]) >> 4 * place & 15 for place in range(8)] == wanted
    scales = drawn(k // group, n, 2, dtype=torch.bfloat16)
    x = drawn(3, k, dtype=torch.bfloat16)
    found = aten._weight_int4pack_mm(x, packed, group, scales)
    scale, zero = scales.float().permute(1, 0, 2).repeat_interleave(group, dim=1).unbind(-1)
    wanted = x.double() @ ((weights - 8) * scale + zero).to(torch.bfloat16).double().t()
    assert found.dtype == torch.bfloat16
    close(found, wanted, 1e-2)


def test_files_of_inductor_make_their_tensors():
    make = pytest.importorskip("torch._C._dynamo.guards")._empty_strided_cuda
    made = make((2, 3), (1, 2), torch.float16)
    assert (made.is_cuda, made.shape, made.stride(), made.dtype) == (True, (2, 3), (1, 2), torch.float16)
    assert torch.cuda._exchange_device(0) == torch.cuda._maybe_exchange_device(-1) == 0
