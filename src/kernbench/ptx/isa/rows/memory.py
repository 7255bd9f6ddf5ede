"""Loads, stores, prefetches and cache policies."""

from kernbench.ptx.isa.rows._types import LOADED, SCOPE
from kernbench.ptx.isa.syntax import Group

group = Group("Loads, stores and cache control", "memory")
row = group.row

_SPACE = "space?:global|shared|shared::cta|shared::cluster|local|const|param|param::entry|param::func"
_STORED = "space?:global|shared|shared::cta|shared::cluster|local|param|param::func"
_ORDERED = "space?:global|shared|shared::cta|shared::cluster"
_L1 = "l1?:L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
_L2 = "l2?:L2::evict_normal|L2::evict_first|L2::evict_last"
_HINT = "hint?:L2::cache_hint"
_FETCH = "fetch?:L2::64B|L2::128B|L2::256B"
_TYPE = f"vec?:v2|v4|v8 type:{LOADED}"
_LOAD = "=d~*vec, [a], policy:b64@hint"
_STORE = "[a], b~*vec, policy:b64@hint"

row("ld", f"sem?:weak {_SPACE} cop?:ca|cg|cs|lu|cv {_L1} {_L2} {_HINT} {_FETCH} unified? {_TYPE}", _LOAD)
row("ld", f"sem:volatile {_SPACE} {_FETCH} {_TYPE}", _LOAD)
row(
    "ld",
    f"sem:relaxed|acquire scope:{SCOPE} {_ORDERED} {_L1} {_L2} {_HINT} {_FETCH} {_TYPE}",
    _LOAD,
    since="6.0",
    sm=70,
)
row("ld", f"mmio sem:relaxed|acquire scope:sys space?:global {_TYPE}", _LOAD, since="8.2", sm=70)
row("ld", f"sem?:weak space:global cop?:ca|cg|cs nc {_L1} {_L2} {_HINT} {_FETCH} {_TYPE}", _LOAD, since="3.1", sm=32)
row("ldu", f"space?:global {_TYPE}", "=d~*vec, [a]", "ld", since="2.0", sm=20)
for modifiers in (
    f"sem?:weak {_SPACE} cop?:ca|cg|cs|lu|cv {_L1} {_L2} {_HINT} {_FETCH} type:b128",
    f"sem:relaxed|acquire scope:{SCOPE} {_ORDERED} {_L1} {_L2} {_HINT} {_FETCH} type:b128",
    f"space:global cop?:ca|cg|cs nc {_L1} {_L2} {_HINT} {_FETCH} type:b128",
):
    row("ld", modifiers, "=d, [a], policy:b64@hint", since="8.3", sm=70)

row("st", f"sem?:weak {_STORED} cop?:wb|cg|cs|wt {_L1} {_L2} {_HINT} {_TYPE}", _STORE)
row("st", f"sem:volatile {_STORED} {_TYPE}", _STORE)
row("st", f"sem:relaxed|release scope:{SCOPE} {_ORDERED} {_L1} {_L2} {_HINT} {_TYPE}", _STORE, since="6.0", sm=70)
row("st", f"mmio sem:relaxed|release scope:sys space?:global {_TYPE}", _STORE, since="8.2", sm=70)
row(
    "st",
    f"sem?:weak {_STORED} cop?:wb|cg|cs|wt {_L1} {_L2} {_HINT} type:b128",
    "[a], b!, policy:b64@hint",
    since="8.3",
    sm=70,
)
row(
    "st",
    f"sem:relaxed|release scope:{SCOPE} {_ORDERED} {_L1} {_L2} {_HINT} type:b128",
    "[a], b!, policy:b64@hint",
    since="8.3",
    sm=70,
)

row("prefetch", "space?:global|local level:L1|L2", "[a]", "hint", since="2.0", sm=20)
row("prefetch", "space:global level:L2::evict_last|L2::evict_normal", "[a]", "hint", since="7.4", sm=80)
row("prefetch", "space?:const|param tensormap", "[a]", "hint", since="8.0", sm=90)
row("prefetchu", "level:L1", "[a]", "hint", since="2.0", sm=20)
row("applypriority", "space?:global level:L2::evict_normal", "[a], size#:u32", "hint", since="7.4", sm=80)
row("discard", "space?:global level:L2", "[a], size#:u32", "discard", since="7.4", sm=80)
_EVICT = "L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged"
row(
    "createpolicy",
    f"mode:fractional primary:{_EVICT} secondary?:L2::evict_first|L2::evict_unchanged type:b64",
    "=d, fraction:f32?",
    since="7.4",
    sm=80,
)
row(
    "createpolicy",
    f"mode:range space?:global primary:{_EVICT} secondary?:L2::evict_first|L2::evict_unchanged type:b64",
    "=d, [a], primary_size:u32, total_size:u32",
    since="7.4",
    sm=80,
)
row("createpolicy", "mode:cvt level:L2 type:b64", "=d, a#", since="7.4", sm=80)
row("mapa", "space?:shared::cluster type:u32|u64", "=d, a&, b:u32", since="7.8", sm=90)
row("getctarank", "space?:shared::cluster type:u32|u64", "=d:u32, a&", since="7.8", sm=90)
row("alloca", "type:u32|u64", "=d, size, alignment#:u32?", since="7.3", sm=52)
row("stacksave", "type:u32|u64", "=d", since="7.3", sm=52)
row("stackrestore", "type:u32|u64", "a!", since="7.3", sm=52)
