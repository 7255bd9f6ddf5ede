"""Loads, stores, prefetches and cache policies."""

from typing import TypedDict

from kernbench.ptx.isa.forms.effects import Effects
from kernbench.ptx.isa.forms.syntax import Group
from kernbench.ptx.isa.forms.type_lists import LOADED, SCOPE

group = Group("Loads, stores and cache control", "memory")
row = group.row
does = group.does

does(
    "ld",
    Effects(
        access="load",
        value="d",
        reads=True,
        follows_from="lane",
        forwards=False,
        undefined_from="memory",
        whole_address=True,
        event="load",
    ),
)
does("st", Effects(access="store", value="b", writes=True, follows_from="lane", whole_address=True, event="store"))
does("hint", Effects(orders=False, follows_from="lane", whole_address=True, event="prefetch"))
does("discard", Effects(whole_address=True, event="prefetch"))
does("mapa getctarank", Effects(of_variables=True))
does("createpolicy alloca stacksave stackrestore", Effects())

_SPACE = "space?:global|shared|shared::cta|shared::cluster|local|const|param|param::entry|param::func"
_STORED = "space?:global|shared|shared::cta|shared::cluster|local|param|param::func"
_SHARED = "space:shared|shared::cta|shared::cluster"
_L1 = "l1?:L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate"
_L2 = "l2?:L2::evict_normal|L2::evict_first|L2::evict_last"
_HINT = "hint?:L2::cache_hint"
_FETCH = "fetch?:L2::64B|L2::128B|L2::256B"
_SMALL = "b8|b16|b32|u8|u16|u32|s8|s16|s32|f32"
_LARGE = "b64|u64|s64|f64"
# vector and type of an access, its value operand, version, target, and whether it has 32 bytes
_WIDTHS = (
    (f"vec?:v2|v4 type:{_SMALL}", "~*vec", "1.0", 10, False),
    (f"vec?:v2 type:{_LARGE}", "~*vec", "1.0", 10, False),
    ("type:b128", "!", "8.3", 70, False),
    ("vec:v8 type:b32|u32|s32|f32", "*vec", "8.8", 100, True),
    ("vec:v4 type:b64|u64|s64|f64", "*vec", "8.8", 100, True),
)


class Since(TypedDict):
    """The least version and target of a row."""

    since: str
    sm: int


for width, value, since, sm, wide in _WIDTHS:
    load, store = f"=d{value}, [a], policy:b64@hint", f"[a], b{value}, policy:b64@hint"
    needs: Since = {"since": since, "sm": sm}
    evict = f"{_L1} {_L2} {_HINT}" if wide else f"{_L1} {_HINT}"
    # ptxas 13.0 crashes on ordered 32-byte accesses of cluster scope
    scope = "cta|gpu|sys" if wide else SCOPE
    if not wide:
        row("ld", f"sem?:weak {_SPACE} cop?:ca|cg|cs|lu|cv {width}", load, **needs)
        row("ld", f"sem:volatile {_SHARED} {width}", load, **needs)
        row("st", f"sem?:weak {_STORED} cop?:wb|cg|cs|wt {width}", store, **needs)
        row("st", f"sem:volatile {_SHARED} {width}", store, **needs)
    row("ld", f"sem?:weak space?:global cop?:ca|cg|cs|lu|cv {_HINT} {_FETCH} {width}", load, **needs)
    row("ld", f"sem?:weak space?:global {evict} {_FETCH} {width}", load, **needs)
    row("ld", f"sem:volatile space?:global {_FETCH} {width}", load, **needs)
    row("st", f"sem?:weak space?:global cop?:wb|cg|cs|wt {_HINT} {width}", store, **needs)
    row("st", f"sem?:weak space?:global {evict} {width}", store, **needs)
    row("st", f"sem:volatile space?:global {width}", store, **needs)
    needs = {"since": max(since, "3.1"), "sm": max(sm, 32)}
    row("ld", f"space:global cop?:ca|cg|cs nc {_HINT} {_FETCH} {width}", load, **needs)
    row("ld", f"space:global nc {evict} {_FETCH} {width}", load, **needs)
    needs = {"since": "8.4" if since == "8.3" else max(since, "6.0"), "sm": max(sm, 70)}
    row("ld", f"sem:relaxed|acquire scope:{scope} space?:global {evict} {_FETCH} {width}", load, **needs)
    row("st", f"sem:relaxed|release scope:{scope} space?:global {evict} {width}", store, **needs)
    if not wide:
        row("ld", f"sem:relaxed|acquire scope:{scope} {_SHARED} {width}", load, **needs)
        row("st", f"sem:relaxed|release scope:{scope} {_SHARED} {width}", store, **needs)
    if width != "type:b128" and not wide:
        row("ldu", f"space?:global {width}", f"=d{value}, [a]", "ld", since="2.0", sm=20)
row("ld", f"mmio sem:relaxed scope:sys space?:global type:{LOADED}", "=d~, [a]", since="8.2", sm=70)
row("st", f"mmio sem:relaxed scope:sys space?:global type:{LOADED}", "[a], b~", since="8.2", sm=70)

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
row("createpolicy", "mode:cvt level:L2 type:b64", "=d, value#", since="7.4", sm=80)
row("mapa", "space?:shared::cluster type:u32|u64", "=d, a&, b:u32", since="7.8", sm=90)
row("getctarank", "space?:shared::cluster type:u32|u64", "=d:u32, a&", since="7.8", sm=90)
row("alloca", "type:u64", "=d, size, alignment#:u32?", since="7.3", sm=52)
row("stacksave", "type:u64", "=d", since="7.3", sm=52)
row("stackrestore", "type:u64", "a!", since="7.3", sm=52)
