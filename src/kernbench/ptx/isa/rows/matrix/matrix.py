"""Matrix instructions of one warp: mma, wmma, ldmatrix, stmatrix, movmatrix."""

from kernbench.ptx.isa.forms.effects import Effects
from kernbench.ptx.isa.forms.syntax import Group

group = Group("Warp matrix instructions", "matrix")
row = group.row
does = group.does

does("mma", Effects(forwards=False, law="accumulate", event="mma"))
does("mma.sp wmma.mma", Effects(event="mma"))
does("movmatrix", Effects())
does("ldmatrix", Effects(reads=True, forwards=False, undefined_from="rows", event="matrix load"))
does("wmma.load", Effects(reads=True, event="matrix load"))
does("stmatrix wmma.store", Effects(writes=True, event="matrix store"))

_INT8 = "u8|s8"
_INT4 = "u4|s4"
_F8 = "e4m3|e5m2"
_F864 = "e4m3|e5m2|e3m2|e2m3|e2m1"


def _fragments(d: str, d_count: int, a: str, a_count: int, b: str, b_count: int, c: str, c_count: int) -> str:
    return f"=d*{d_count}:{d}, a*{a_count}:{a}, b*{b_count}:{b}, c*{c_count}:{c}"


# shape, types of A and B, registers of A and of B (_INTEGER: and of C and D), since, sm
_HALF = (
    ("m16n8k8", "f16", 2, 1, "6.5", 75),
    ("m16n8k16", "f16", 4, 2, "7.0", 80),
    ("m16n8k32", _F8, 4, 2, "8.7", 89),
    ("m16n8k16", _F8, 2, 1, "8.7", 89),
)
_SINGLE = (
    ("m16n8k8", "bf16", 2, 1, "7.0", 80),
    ("m16n8k16", "bf16", 4, 2, "7.0", 80),
    ("m16n8k4", "tf32", 2, 1, "7.0", 80),
    ("m16n8k8", "tf32", 4, 2, "7.0", 80),
    ("m16n8k32", _F8, 4, 2, "8.4", 89),
    ("m16n8k16", _F8, 2, 1, "8.7", 89),
    ("m16n8k8", "f16", 2, 1, "6.5", 75),
    ("m16n8k16", "f16", 4, 2, "7.0", 80),
)
_INTEGER = (
    ("m8n8k16", _INT8, 1, 1, 2, "6.5", 75),
    ("m16n8k16", _INT8, 2, 1, 4, "7.0", 80),
    ("m16n8k32", _INT8, 4, 2, 4, "7.0", 80),
    ("m8n8k32", _INT4, 1, 1, 2, "6.5", 75),
    ("m16n8k32", _INT4, 2, 1, 4, "7.0", 80),
    ("m16n8k64", _INT4, 4, 2, 4, "7.0", 80),
)
_BIT = (("m8n8k128", 1, 1, 2, 75), ("m16n8k128", 2, 1, 4, 80), ("m16n8k256", 4, 2, 4, 80))
_DOUBLE = (("m8n8k4", 1, 1, 2, 80), ("m16n8k4", 2, 1, 4, 90), ("m16n8k8", 4, 2, 4, 90), ("m16n8k16", 8, 4, 4, 90))
_HEAD = "sync aligned shape:{} alayout:row blayout:col"


def _mma(shape: str, dtype: str, atypes: str, ctype: str, operands: str, since: str, sm: int, **more: str) -> None:
    types = f"dtype:{dtype} atype:{atypes} btype:{atypes} ctype:{ctype}"
    row(
        "mma",
        f"{_HEAD.format(shape)} {more.get('saturate', '')} {types} {more.get('op', '')}",
        operands,
        since=since,
        sm=sm,
    )


for dtype, ctype in (("f16", "f16"), ("f32", "f16"), ("f32", "f32")):
    d_count, c_count = 4 if dtype == "f16" else 8, 4 if ctype == "f16" else 8
    d_type, c_type = "b32" if dtype == "f16" else "f32", "b32" if ctype == "f16" else "f32"
    row(
        "mma",
        f"sync aligned shape:m8n8k4 alayout:row|col blayout:row|col dtype:{dtype} atype:f16 btype:f16 ctype:{ctype}",
        _fragments(d_type, d_count, "b32", 2, "b32", 2, c_type, c_count),
        since="6.4",
        sm=70,
    )
for shape, types, a, b, since, sm in _HALF:
    _mma(shape, "f16", types, "f16", _fragments("b32", 2, "b32", a, "b32", b, "b32", 2), since, sm)
for shape, types, a, b, since, sm in _SINGLE:
    _mma(shape, "f32", types, "f32", _fragments("f32", 4, "b32", a, "b32", b, "f32", 4), since, sm)
for shape, types, a, b, c, since, sm in _INTEGER:
    _mma(
        shape, "s32", types, "s32", _fragments("s32", c, "b32", a, "b32", b, "s32", c), since, sm, saturate="satfinite?"
    )
for shape, a, b, c, sm in _BIT:
    for op, since, least in (("xor", "7.0", sm), ("and", "7.1", 80)):
        bits = _fragments("s32", c, "b32", a, "b32", b, "s32", c)
        _mma(shape, "s32", "b1", "s32", bits, since, least, op=f"op:{op} popc")
for shape, a, b, c, sm in _DOUBLE:
    _mma(
        shape, "f64", "f64", "f64", _fragments("f64", c, "f64", a, "f64", b, "f64", c), "7.0" if sm == 80 else "7.8", sm
    )
for dtype, register, count in (("f32", "f32", 4), ("f16", "b32", 2)):
    row(
        "mma",
        f"{_HEAD.format('m16n8k32')} kind:kind::f8f6f4 dtype:{dtype} atype:{_F864} btype:{_F864} ctype:{dtype}",
        _fragments(register, count, "b32", 4, "b32", 2, register, count),
        since="8.7",
        sm=120,
        family="120f",
    )
_SCALES = "sa!*1:b32, sa_id*2:b16, sb!*1:b32, sb_id*2:b16"
for shape, kind, types, vectors, scales in (
    ("m16n8k32", "kind::mxf8f6f4", _F864, "vector?:scale_vec::1X", "ue8m0"),
    ("m16n8k64", "kind::mxf4", "e2m1", "vector?:scale_vec::2X", "ue8m0"),
    ("m16n8k64", "kind::mxf4nvf4", "e2m1", "vector:scale_vec::2X", "ue8m0"),
    ("m16n8k64", "kind::mxf4nvf4", "e2m1", "vector:scale_vec::4X", "ue4m3"),
):
    row(
        "mma",
        f"sync aligned shape:{shape} alayout:row blayout:col kind:{kind} block_scale {vectors} dtype:f32 atype:{types} "
        f"btype:{types} ctype:f32 stype:{scales}",
        f"{_fragments('f32', 4, 'b32', 4, 'b32', 2, 'f32', 4)}, {_SCALES}",
        since="8.7",
        sm=120,
        family="120f",
    )

# sparse: shape, types, registers of A and B, accumulators (type, register type, count)
_SPARSE = (
    ("m16n8k16", "f16", 2, 2, "f16|f32"),
    ("m16n8k32", "f16", 4, 4, "f16|f32"),
    ("m16n8k16", "bf16", 2, 2, "f32"),
    ("m16n8k32", "bf16", 4, 4, "f32"),
    ("m16n8k8", "tf32", 2, 2, "f32"),
    ("m16n8k16", "tf32", 4, 4, "f32"),
    ("m16n8k64", _F8, 4, 4, "f32"),
    ("m16n8k32", _INT8, 2, 2, "s32"),
    ("m16n8k64", _INT8, 4, 4, "s32"),
    ("m16n8k64", _INT4, 2, 2, "s32"),
    ("m16n8k128", _INT4, 4, 4, "s32"),
)
for shape, types, a, b, accumulators in _SPARSE:
    for dtype in accumulators.split("|"):
        register, count = ("b32", 2) if dtype == "f16" else (dtype, 4)
        f8 = types == _F8
        saturate = "satfinite? " if dtype == "s32" else ""
        # f8 exists only with ordered metadata
        row(
            "mma",
            f"sp:{'' if f8 else 'sp|'}sp::ordered_metadata {_HEAD.format(shape)} {saturate}"
            f"dtype:{dtype} atype:{types} btype:{types} ctype:{dtype}",
            f"{_fragments(register, count, 'b32', a, 'b32', b, register, count)}, e!*1:b32, selector#:u32",
            "mma.sp",
            since="8.5",
            sm=89 if f8 else 80,
        )

_LAYOUT = "layout:row|col"
_SPACE = "space?:global|shared|shared::cta"
# shape, element types, registers (type and count) of A and B
_WMMA = (
    ("m16n16k16|m8n32k16|m32n8k16", "f16", "b32", 8, 8, "6.0", 70),
    ("m16n16k16", "bf16", "b32", 4, 4, "7.0", 80),
    ("m8n32k16", "bf16", "b32", 2, 8, "7.0", 80),
    ("m32n8k16", "bf16", "b32", 8, 2, "7.0", 80),
    ("m16n16k8", "tf32", "b32", 4, 4, "7.0", 80),
    ("m16n16k16", _INT8, "b32", 2, 2, "6.3", 72),
    ("m8n32k16", _INT8, "b32", 1, 4, "6.3", 72),
    ("m32n8k16", _INT8, "b32", 4, 1, "6.3", 72),
    ("m8n8k4", "f64", "f64", 1, 1, "7.0", 80),
)
for shape, types, register, a, b, since, sm in _WMMA:
    for name, count in (("a", a), ("b", b)):
        modifiers = f"load matrix:{name} sync aligned {_LAYOUT} shape:{shape} {_SPACE} type:{types}"
        row("wmma", modifiers, f"=r*{count}:{register}, [p], stride:u32?", "wmma.load", since=since, sm=sm)
_FLOATS = "m16n16k16|m8n32k16|m32n8k16"
# accumulators: shapes, type, register type and count
_ACCUMULATORS = (
    (_FLOATS, "f16", "b32", 4, "6.0", 70),
    (_FLOATS, "f32", "f32", 8, "6.0", 70),
    ("m16n16k8", "f32", "f32", 8, "7.0", 80),
    (_FLOATS, "s32", "s32", 8, "6.3", 72),
    ("m8n8k4", "f64", "f64", 2, "7.0", 80),
    ("m8n8k32|m8n8k128", "s32", "s32", 2, "6.3", 75),
)
for shape, types, register, count, since, sm in _ACCUMULATORS:
    modifiers = f"load matrix:c sync aligned {_LAYOUT} shape:{shape} {_SPACE} type:{types}"
    row("wmma", modifiers, f"=r*{count}:{register}, [p], stride:u32?", "wmma.load", since=since, sm=sm)
    modifiers = f"store matrix:d sync aligned {_LAYOUT} shape:{shape} {_SPACE} type:{types}"
    row("wmma", modifiers, f"[p], r*{count}:{register}, stride:u32?", "wmma.store", since=since, sm=sm)
for name, layout in (("a", "row"), ("b", "col")):
    for shape, types in (("m8n8k32", _INT4), ("m8n8k128", "b1")):
        modifiers = f"load matrix:{name} sync aligned layout:{layout} shape:{shape} {_SPACE} type:{types}"
        row("wmma", modifiers, "=r*1:b32, [p], stride:u32?", "wmma.load", since="6.3", sm=75)
_LAYOUTS = "alayout:row|col blayout:row|col"
for dtype, ctype in (("f16", "f16"), ("f32", "f16"), ("f16", "f32"), ("f32", "f32")):
    d_register, d_count = ("b32", 4) if dtype == "f16" else ("f32", 8)
    c_register, c_count = ("b32", 4) if ctype == "f16" else ("f32", 8)
    modifiers = f"mma sync aligned {_LAYOUTS} shape:{_FLOATS} dtype:{dtype} ctype:{ctype}"
    operands = _fragments(d_register, d_count, "b32", 8, "b32", 8, c_register, c_count)
    row("wmma", modifiers, operands, "wmma.mma", since="6.0", sm=70)
for shape, types, register, a, b, since, sm in _WMMA[1:]:
    acc, count = ("s32", 8) if types == _INT8 else ("f64", 2) if types == "f64" else ("f32", 8)
    saturate, rounding = "satfinite?" if acc == "s32" else "", "rnd?:rn|rz|rm|rp" if acc == "f64" else ""
    head = f"mma sync aligned {_LAYOUTS} shape:{shape} {rounding}"
    operands = _fragments(acc, count, register, a, register, b, acc, count)
    # both factors have the same type
    for kind in types.split("|"):
        types_text = f"dtype:{acc} atype:{kind} btype:{kind} ctype:{acc}"
        row("wmma", f"{head} {types_text} {saturate}", operands, "wmma.mma", since=since, sm=sm)
_SUBBYTE = _fragments("s32", 2, "b32", 1, "b32", 1, "s32", 2)
for kind in _INT4.split("|"):
    row(
        "wmma",
        f"mma {_HEAD.format('m8n8k32')} dtype:s32 atype:{kind} btype:{kind} ctype:s32 satfinite?",
        _SUBBYTE,
        "wmma.mma",
        since="6.3",
        sm=75,
    )
_BITS = "popc sync aligned alayout:row blayout:col shape:m8n8k128 dtype:s32 atype:b1 btype:b1 ctype:s32"
row("wmma", f"mma op:xor {_BITS}", _SUBBYTE, "wmma.mma", since="6.3", sm=75)
row("wmma", f"mma op:and {_BITS}", _SUBBYTE, "wmma.mma", since="7.1", sm=80)

_SHARED = "space?:shared|shared::cta"
_NUMBER = "num:x1|x2|x4"
_PACKED = "type:b8x16 stype:b6x16_p32|b4x16_p64"
row("ldmatrix", f"sync aligned shape:m8n8 {_NUMBER} trans? {_SHARED} type:b16", "=r*num:b32, [p]", since="6.5", sm=75)
row(
    "ldmatrix",
    f"sync aligned shape:m16n16 num:x1|x2 trans {_SHARED} type:b8",
    "=r*num*2:b32, [p]",
    since="8.6",
    sm=100,
    family="a",
)
row(
    "ldmatrix",
    f"sync aligned shape:m8n16 {_NUMBER} {_SHARED} {_PACKED}",
    "=r*num:b32, [p]",
    since="8.6",
    sm=100,
    family="a",
)
row(
    "ldmatrix",
    f"sync aligned shape:m16n16 num:x1|x2 trans {_SHARED} {_PACKED}",
    "=r*num*2:b32, [p]",
    since="8.6",
    sm=100,
    family="a",
)
row("stmatrix", f"sync aligned shape:m8n8 {_NUMBER} trans? {_SHARED} type:b16", "[p], r*num:b32", since="7.8", sm=90)
row(
    "stmatrix",
    f"sync aligned shape:m16n8 {_NUMBER} trans {_SHARED} type:b8",
    "[p], r*num:b32",
    since="8.6",
    sm=100,
    family="a",
)
row("movmatrix", "sync aligned shape:m8n8 trans type:b16", "=d:b32, a!:b32", since="7.8", sm=75)
