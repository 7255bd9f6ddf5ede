"""Compare and select."""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import LANE_WISE
from kernbench.ptx.isa.forms.syntax import Group
from kernbench.ptx.isa.forms.type_lists import BITS

group = Group("Compare and select", "int", LANE_WISE)
row = group.row
does = group.does

does("setp", replace(LANE_WISE, law="compare", arithmetic=True))
does("set", replace(LANE_WISE, arithmetic=True))
does("selp", replace(LANE_WISE, law="select"))

_BOOL = "and|or|xor"
_EQUAL = "eq|ne"
_SIGNED = "eq|ne|lt|le|gt|ge"
_UNSIGNED = "eq|ne|lt|le|gt|ge|lo|ls|hi|hs"
_FLOAT = "eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
_NUMBERS = (
    (f"cmp:{_EQUAL}", f"type:{BITS}", "1.0", 10),
    (f"cmp:{_SIGNED}", "type:s16|s32|s64", "1.0", 10),
    (f"cmp:{_UNSIGNED}", "type:u16|u32|u64", "1.0", 10),
    (f"cmp:{_FLOAT}", "ftz? type:f32", "1.0", 10),
    (f"cmp:{_FLOAT}", "type:f64", "1.0", 13),
)

for cmp, types, since, sm in _NUMBERS:
    row("setp", f"{cmp} {types}", "=p:pred|q:pred?, a, b", since=since, sm=sm)
    row("setp", f"{cmp} bool:{_BOOL} {types}", "=p:pred|q:pred?, a, b, c:pred", since=since, sm=sm)
    row("set", f"{cmp} dtype:u32|s32|f32 {types}", "=d:dtype, a, b", since=since, sm=sm)
    row("set", f"{cmp} bool:{_BOOL} dtype:u32|s32|f32 {types}", "=d:dtype, a, b, c:pred", since=since, sm=sm)
for types, since, sm, pair in (
    ("ftz? type:f16", "4.2", 53, "=p:pred"),
    ("type:bf16", "7.8", 90, "=p:pred"),
    ("ftz? type:f16x2", "4.2", 53, "=p:pred|q:pred"),
    ("type:bf16x2", "7.8", 90, "=p:pred|q:pred"),
):
    row("setp", f"cmp:{_FLOAT} {types}", f"{pair}, a, b", since=since, sm=sm, cost="half")
    row("setp", f"cmp:{_FLOAT} bool:{_BOOL} {types}", f"{pair}, a, b, c:pred", since=since, sm=sm, cost="half")
for types, dtypes, since, sm in (
    ("ftz? type:f16", "f16", "4.2", 53),
    ("ftz? type:f16", "u16|s16|u32|s32", "6.5", 53),
    ("ftz? type:f16x2", "f16x2|u32|s32", "6.5", 53),
    ("type:bf16", "bf16|u16|s16|u32|s32", "7.8", 90),
    ("type:bf16x2", "bf16x2|u32|s32", "7.8", 90),
):
    modifiers, dtype = types.rsplit(" ", 1)[0] if " " in types else "", types.rsplit(" ", 1)[-1]
    head = f"cmp:{_FLOAT} {modifiers}"
    row("set", f"{head} dtype:{dtypes} {dtype}", "=d:dtype, a, b", since=since, sm=sm, cost="half")
    row("set", f"{head} bool:{_BOOL} dtype:{dtypes} {dtype}", "=d:dtype, a, b, c:pred", since=since, sm=sm, cost="half")
row("selp", f"type:{BITS}|u16|u32|u64|s16|s32|s64|f32|f64", "=d, a, b, c:pred")
row("slct", f"type:{BITS}|u16|u32|u64|s16|s32|s64|f32|f64 ctype:s32", "=d, a, b, c:ctype")
row("slct", f"ftz? type:{BITS}|u16|u32|u64|s16|s32|s64|f32|f64 ctype:f32", "=d, a, b, c:ctype")
