"""Every name of Triton's language that a kernel may use is there, or is refused with what to write instead."""

import inspect

import numpy as np
import pytest
from tests import sampled

from kernbench import mesh
from kernbench.common.errors import KernelError
from kernbench.common.pe_commands import METHODS, TensorHandle
from kernbench.triton_emu import TLContext, run_kernel
from kernbench.triton_emu.explaining import ARGUMENTS, REFUSED

# the public names of triton.language 3.9
TRITON = [
    "PropagateNan", "TRITON_MAX_TENSOR_NUMEL", "abs", "add", "arange", "argmax", "argmin", "associative_scan",
    "assume", "atomic_add", "atomic_and", "atomic_cas", "atomic_load", "atomic_max", "atomic_min", "atomic_or",
    "atomic_poll", "atomic_store", "atomic_xchg", "atomic_xor", "bfloat16", "bitonic_merge", "block_type",
    "broadcast", "broadcast_to", "cast", "cat", "cdiv", "ceil", "clamp", "condition", "const", "constexpr",
    "constexpr_type", "cos", "cumprod", "cumsum", "debug_barrier", "device_assert", "device_print", "div_rn",
    "dot", "dot_scaled", "dtype", "erf", "exp", "exp2", "expand_dims", "expect_zero", "extra", "fdiv", "flip",
    "float16", "float32", "float64", "float8e4b15", "float8e4b8", "float8e4nv", "float8e5", "float8e5b16",
    "floor", "fma", "full", "gather", "histogram", "inline_asm_elementwise", "int1", "int16", "int32", "int64",
    "int8", "interleave", "join", "load", "load_tensor_descriptor", "log", "log2", "make_block_ptr",
    "make_tensor_descriptor", "map_elementwise", "math", "max", "max_constancy", "max_contiguous", "maximum",
    "min", "minimum", "mul", "multiple_of", "num_programs", "pair_uniform_to_normal", "permute", "philox",
    "philox_impl", "pi32_t", "pointer_type", "program_id", "rand", "rand4x", "randint", "randint4x", "randn",
    "randn4x", "range", "ravel", "reduce", "reduce_or", "reshape", "rsqrt", "sigmoid", "sin", "slice",
    "softmax", "sort", "split", "sqrt", "sqrt_rn", "squeeze", "static_assert", "static_print", "static_range",
    "store", "store_tensor_descriptor", "sub", "sum", "swizzle2d", "target_info", "tensor", "tensor_descriptor",
    "to_tensor", "topk", "trans", "tuple", "uint16", "uint32", "uint64", "uint8", "uint_to_uniform_float",
    "umulhi", "unsqueeze", "view", "void", "where", "xor_sum", "zeros", "zeros_like",
]  # fmt: skip


@sampled.each(TRITON)
def test_a_name_works_or_is_refused_with_what_to_write(name):
    if hasattr(TLContext, name):
        assert name not in REFUSED
        return

    def kernel(*, tl):
        getattr(tl, name)

    with pytest.raises(KernelError, match=rf"tl\.{name} is not there") as refused:
        run_kernel(kernel, TLContext())
    assert refused.value.kind == "misuse"
    assert len(refused.value.hint) > 10
    assert refused.value.where.line == kernel.__code__.co_firstlineno + 1


def test_what_is_refused_is_not_there():
    assert not [name for name in REFUSED if hasattr(TLContext, name)]


@sampled.each(METHODS)
def test_methods_of_handles_are_operations(name):
    assert callable(getattr(TLContext, name))
    assert getattr(TensorHandle, name).__name__ == name


def findings_of(body, *arguments):
    """What a launch of `body(tl, ptr, x)` on one PE finds."""

    def kernel(x_ptr, o_ptr, *, tl):
        x = tl.load(x_ptr, (4,))
        body(tl, x_ptr, x)
        tl.store(o_ptr, x)

    host = mesh.Host("small", ranks=1)
    x, o = host.replicate(np.arange(4, dtype=np.float16)), host.empty((4,), "f16")
    return host.launch(kernel, x, o, *arguments).findings


WRONG = {
    "no such argument": (
        lambda tl, p, x: tl.sum(x, axes=0),
        "unexpected keyword argument 'axes'",
        "tl.sum(input, axis",
    ),
    "an argument short": (lambda tl, p, x: tl.dot(x), "missing 1 required", "tl.dot(input, other"),
    "an argument too many": (lambda tl, p, x: tl.exp(x, 1), "positional arguments", "it takes tl.exp(x"),
    "of a method": (lambda tl, p, x: x.sum(0, keepdim=True), "'keepdim'", "keep_dims"),
    "a mask": (lambda tl, p, x: tl.load(p, (4,), mask=x > 0), "'mask'", "load or store only what exists"),
    "a mask as a shape": (lambda tl, p, x: tl.load(p, x > 0), "whole numbers", "no masks"),
    "a masked store": (lambda tl, p, x: tl.store(p, x, mask=x > 0), "'mask'", "boundary_check"),
    "pointers to elements": (lambda tl, p, x: tl.load(p + tl.arange(0, 4)), "which is an address", "load a tile"),
    "a type of a pointer": (lambda tl, p, x: p.dtype.element_ty, "has no .dtype", "tl.element_type(ptr)"),
    "a type of a type": (lambda tl, p, x: x.to(x.dtype.element_ty), "has no .element_ty", "already"),
    "a wide program id": (lambda tl, p, x: tl.program_id(0).to("i64"), "the number 0 has no .to", "leave .to(...) out"),
    "an unknown method": (lambda tl, p, x: x.summ(0), "Did you mean 'sum'?", ""),
    "an operation as a method": (lambda tl, p, x: x.maximum(0.0), "unknown attribute", "write tl.maximum(handle, ...)"),
    "NumPy": (lambda tl, p, x: np.exp(x), "does not support ufuncs", "tl.exp"),
    "a number stored": (lambda tl, p, x: tl.store(p, 1.0), "store needs a tensor handle", "tl.full"),
    "a power": (lambda tl, p, x: x**2, "**", "tl.exp2"),
    "a product": (lambda tl, p, x: x @ x, "@", "tl.dot"),
    "a length": (lambda tl, p, x: len(x), "len", "shape[0]"),
    "a loop": (lambda tl, p, x: list(x), "looped over", "range(handle.shape[0])"),
    "an item written": (lambda tl, p, x: x.__setitem__(0, 1.0), "written into", "tl.where"),
    "and of masks": (lambda tl, p, x: (x > 0) and (x < 2), "no single value", "& | ~"),
    "division by none": (lambda tl, p, x: tl.arange(0, 4) // 0, "floordiv of a handle of i32 by 0", "quotient"),
    "one handle joined": (lambda tl, p, x: tl.cat(x), "cat of 1 handle", "tl.cat([a, b])"),
    "an assertion": (lambda tl, p, x: tl.device_assert(x < 3, "big"), "1 of 4 elements, the first at [3]: big", "own"),
    "an assumption": (lambda tl, p, x: tl.assume(p == 0), "assume does not hold", "own"),
    "a wrong claim": (lambda tl, p, x: tl.multiple_of(6, 4), "6 is no multiple of 4", "mend the offset"),
    "a pick outside": (lambda tl, p, x: tl.gather(x, tl.arange(1, 5), 0), "index 4 at [3] of an axis of 4", ""),
    "combining to a number": (lambda tl, p, x: tl.reduce(x, 0, lambda a, b: 1.0), "combine_fn gave (1.0,)", ""),
    "a descriptor too large": (
        lambda tl, p, x: tl.make_tensor_descriptor(p, [5], [1], [5]).load([0]),
        "2 bytes past its end",
        "check the offset",
    ),
    "a tile of other axes": (lambda tl, p, x: tl.make_block_ptr(p, (4,), (1,), (0, 0), (4,)), "one entry for each", ""),
}


@sampled.each(WRONG)
def test_habits_from_elsewhere_are_met_with_an_explanation(case):
    body, says, remedy = WRONG[case]
    (finding,) = findings_of(body)
    assert says in finding.message
    assert remedy in finding.hint
    assert finding.where.file == __file__


def test_arguments_of_triton_that_are_explained_are_not_taken():
    taken = {p for n in ("load", "store") for p in inspect.signature(getattr(TLContext, n)).parameters}
    assert not taken & ARGUMENTS.keys()
