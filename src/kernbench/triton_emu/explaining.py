"""What people write for Triton and this machine does not have: each name with what to write instead."""

import inspect
import re

from kernbench.common.errors import KernelError, unknown
from kernbench.common.pe_commands import TensorHandle
from kernbench.safety.source_locations import raised_at

__kernbench_internal__ = True

_INTEGERS = (
    "the machine computes in i32, i8 and masks (i1): use tl.int32; numbers of the kernel's own Python never overflow"
)
_FLOATS = "the machine has f32, f16, bf16, f8e4m3 and f8e5m2: use tl.float32, tl.float8e4nv or tl.float8e5"
_ATOMIC = (
    "no other program reaches a PE's memory, so there is nothing to be atomic about: load, combine and store; between "
    "ranks use tl.send and tl.recv, or host.dist.all_reduce"
)
_TYPES = "element types are names such as 'f16' here (handle.dtype == 'f16'), and addresses are whole numbers"
_COMPILE = "kernels are plain Python here: leave it out"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("int16", "int64", "uint8", "uint16", "uint32", "uint64"), _INTEGERS),
    **dict.fromkeys(("float64", "float8e4b15", "float8e4b8", "float8e5b16"), _FLOATS),
    **{
        f"atomic_{name}": _ATOMIC
        for name in ("add", "and", "cas", "max", "min", "or", "xchg", "xor", "load", "store", "poll")
    },
    **dict.fromkeys(
        ("dtype", "pointer_type", "block_type", "void", "pi32_t", "str_to_ty", "tensor_descriptor_type"), _TYPES
    ),
    **dict.fromkeys(
        ("const", "condition", "constexpr_type", "tuple_type", "aggregate_replace", "must_use_result"), _COMPILE
    ),
    "tensor_descriptor": "make one with tl.make_tensor_descriptor(base, shape, strides, block_shape)",
    "inline_asm_elementwise": "there is no assembly here: write it with tl's elementwise operations",
    "map_elementwise": "operations on handles are elementwise already: call the function on the handles",
    "dot_scaled": "multiply by the scales: tl.dot((a.to('f32') * scale_a), (b.to('f32') * scale_b))",
    "extra": "there is no libdevice: tl itself has exp, exp2, log, log2, sqrt, rsqrt, sin, cos, erf, tanh, sigmoid",
    "philox_impl": "use tl.philox(seed, c0, c1, c2, c3, n_rounds)",
    "bitonic_merge": "use tl.sort(x, dim, descending)",
    "expect_zero": "there is no race between programs to guard against: leave it out",
    "target_info": "the machine is known before the launch: pass what the kernel needs as an argument",
    "TRITON_MAX_TENSOR_NUMEL": "the scratch memory limits a value, whatever its number of elements",
    "num_warps": "a PE has one instruction stream, and no warps",
    "jit": "a kernel is a plain function with a keyword argument tl; functions it calls get tl passed on",
    "autotune": "sweep instead: kernbench sweep FILE --over BLOCK=64,128",
    "pow": "multiply, or tl.exp2(y * tl.log2(x))",
    "log1p": "use tl.log(1 + x)",
    "expm1": "use tl.exp(x) - 1",
    "matmul": "use tl.dot(a, b)",
    "mean": "use tl.sum(x, axis) / n",
    "ones": "use tl.full(shape, 1, dtype)",
    "empty": "use tl.zeros(shape, dtype)",
    "barrier": "programs meet only in messages: a send and a receive each way, or host.dist.barrier() between launches",
}

ARGUMENTS: dict[str, str] = {
    "mask": "tiles have any size here: load or store only what exists, shape=(min(BLOCK, n - first), ...); or use "
    "tl.make_block_ptr with boundary_check, or tl.make_tensor_descriptor",
    "other": "tiles have any size here, so nothing is left out; tl.make_block_ptr fills with zeros past the edge",
    "sem": _ATOMIC,
    "num_warps": "a PE has no warps: leave it out",
}

_OF_NUMBERS = "addresses, program ids and sizes are whole numbers of Python, which never overflow: "
_ATTRIBUTES: dict[tuple[type, str], str] = {
    (int, "to"): _OF_NUMBERS + "leave .to(...) out",
    (int, "cast"): _OF_NUMBERS + "leave the cast out",
    (int, "dtype"): "an address carries no type: tl.element_type(ptr) gives the tensor's, and a store rounds to it",
    (int, "type"): "an address carries no type: tl.element_type(ptr) gives the tensor's",
    (int, "shape"): "an address carries no shape: pass the sizes as arguments",
    (int, "load"): "make a descriptor with tl.make_tensor_descriptor, or use tl.load(ptr, shape)",
    (int, "value"): "constants are plain numbers here: leave .value out",
    (str, "element_ty"): "this is the element type already",
    (str, "scalar"): "this is the element type already",
    **{
        (str, f"is_{name}"): "compare the name: handle.dtype == 'f16'"
        for name in ("fp16", "bf16", "fp32", "fp8", "int", "floating")
    },
    (str, "primitive_bitwidth"): "the name says it: f32 and i32 have 32 bits, f16 and bf16 have 16, f8 and i8 have 8",
}
_CALL = re.compile(r"^[\w.<>]*?(\w+)\(\) ((?:missing|got|takes).*)$", re.DOTALL)
_WORD = re.compile(r"keyword argument '(\w+)'")


class UnknownOperationError(KernelError, AttributeError):
    """`tl`, or a handle, has no such name."""


def explained(error: BaseException, tl: object) -> KernelError | None:
    """The error as one of the kernel's, with what to write instead; None where Python says it best."""
    if isinstance(error, AttributeError):
        return _attribute(error, tl)
    return _call(error, tl) if isinstance(error, TypeError) else None


def _attribute(error: AttributeError, tl: object) -> KernelError | None:
    location, name = raised_at(error), str(error.name)
    if error.obj is tl:
        if name in REFUSED:
            return UnknownOperationError("misuse", f"tl.{name} is not there", REFUSED[name], location)
        known = sorted(n for n in dir(tl) if not n.startswith("_"))
        return UnknownOperationError("misuse", unknown("tl operation", name, known), "", location)
    hint = _ATTRIBUTES.get((type(error.obj), name))
    if isinstance(error.obj, TensorHandle):
        known = sorted(n for n in dir(TensorHandle) if not n.startswith("_"))
        message = unknown("attribute of a handle", name, known)
        return UnknownOperationError("misuse", message, REFUSED.get(name) or _operation(tl, name), location)
    what = "the element type" if isinstance(error.obj, str) else "the number"
    return None if hint is None else KernelError("misuse", f"{what} {error.obj!r} has no .{name}", hint, location)


def _operation(tl: object, name: str) -> str:
    return f"write tl.{name}(handle, ...)" if not name.startswith("_") and hasattr(type(tl), name) else ""


def _call(error: TypeError, tl: object) -> KernelError | None:
    """A call of `tl` with other arguments than it takes, or of NumPy with a handle."""
    if "does not support ufuncs" in str(error):
        hint = "NumPy's functions do not compute on handles: use those of tl (tl.exp, tl.maximum, ...)"
        return KernelError("misuse", str(error), hint, raised_at(error))
    found = _CALL.match(str(error))
    method = found and getattr(type(tl), found[1], None)
    if found is None or not inspect.isroutine(method) or _from_within(error):
        return None
    word = _WORD.search(found[2])
    signature = inspect.signature(getattr(tl, found[1]))
    takes = f"tl.{found[1]}({', '.join(str(p).split(':')[0].split('=')[0] for p in signature.parameters.values())})"
    remedy = ARGUMENTS.get(word[1], "") if word else ""
    return KernelError("misuse", f"tl.{found[1]} {found[2]}", remedy or f"it takes {takes}", raised_at(error))


def _from_within(error: BaseException) -> bool:
    """Whether the innermost frame is one of ours, so that the call itself was well formed."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    # a handle's methods only pass their arguments on
    inner = {} if trace is None else trace.tb_frame.f_globals
    return "__kernbench_internal__" in inner and inner.get("__name__") != TensorHandle.__module__
