"""Moves and conversions."""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import LANE_WISE
from kernbench.ptx.isa.forms.syntax import Group
from kernbench.ptx.isa.forms.type_lists import BITS, INT8, RND, RNI

group = Group("Moves and conversions", "convert", LANE_WISE)
row = group.row
does = group.does

does("mov", replace(LANE_WISE, law="copy"))
does("pack", replace(LANE_WISE, law="pack"))
does("unpack", replace(LANE_WISE, law="unpack"))
does("cvt", replace(LANE_WISE, law="convert", arithmetic=True))
does("cvt.packed cvt.pack", replace(LANE_WISE, law="convert and pack", arithmetic=True))
does("cvta", replace(LANE_WISE, law="address", of_variables=True))

row("mov", f"type:{BITS}|u16|u32|u64|s16|s32|s64|f32|f64", "=d, a&", cost="move")
row("mov", "type:pred", "=d:pred, a:pred", cost="move")
row("mov", "type:b128", "=d, a!", since="8.3", sm=70, cost="move")
row("mov", "type:u32|b32 vec:v4", "=d*vec, a&", cost="move")
row("mov", "type:b16|b32|b64", "=d, a*2:type/2", "pack", cost="move")
row("mov", "type:b32|b64", "=d, a*4:type/4", "pack", cost="move")
row("mov", "type:b16|b32|b64", "=d*2:type/2, a!", "unpack", cost="move")
row("mov", "type:b32|b64", "=d*4:type/4, a!", "unpack", cost="move")
row("mov", "type:b128", "=d, a*2:b64", "pack", since="8.3", sm=70, cost="move")
row("mov", "type:b128", "=d, a*4:b32", "pack", since="8.3", sm=70, cost="move")
row("mov", "type:b128", "=d*2:b64, a!", "unpack", since="8.3", sm=70, cost="move")
row("mov", "type:b128", "=d*4:b32, a!", "unpack", since="8.3", sm=70, cost="move")

# integer type -> types with values outside its range
_SATURATING = {
    "u8": "u16|u32|u64|s8|s16|s32|s64",
    "u16": "u32|u64|s8|s16|s32|s64",
    "u32": "u64|s8|s16|s32|s64",
    "u64": "s8|s16|s32|s64",
    "s8": "u8|u16|u32|u64|s16|s32|s64",
    "s16": "u16|u32|u64|s32|s64",
    "s32": "u32|u64|s64",
    "s64": "u64",
}
_ONE = "=d~:dtype, a~:atype"
row("cvt", f"dtype:{INT8} atype:{INT8}", "=d~:dtype, a~&:atype")
for dtype, atypes in _SATURATING.items():
    row("cvt", f"sat dtype:{dtype} atype:{atypes}", _ONE)
row("cvt", f"rnd:{RND} ftz? sat? dtype:f32 atype:{INT8}", _ONE)
row("cvt", f"rnd:{RND} sat? dtype:f16|f64 atype:{INT8}", _ONE)
row("cvt", f"rnd:{RND} dtype:bf16 atype:{INT8}", "=d:dtype, a~:atype", since="7.8", sm=90)
row("cvt", f"rnd:{RNI} ftz? sat? dtype:{INT8} atype:f32", _ONE)
row("cvt", f"rnd:{RNI} sat? dtype:{INT8} atype:f16|f64", _ONE)
row("cvt", f"rnd:{RNI} dtype:{INT8} atype:bf16", "=d~:dtype, a:atype", since="7.8", sm=90)
row("cvt", f"rnd:{RND} ftz? sat? dtype:f32 atype:f64", _ONE)
row("cvt", f"rnd:{RND} sat? dtype:f16 atype:f64", _ONE)
row("cvt", f"rnd:{RND} ftz? sat? dtype:f16 atype:f32", _ONE)
row("cvt", "ftz? sat? dtype:f32 atype:f16", _ONE)
row("cvt", "ftz? sat? dtype:f64 atype:f32", _ONE)
row("cvt", "sat? dtype:f64 atype:f16", _ONE)
row("cvt", f"rnd?:{RNI} ftz? sat? dtype:f32 atype:f32", _ONE)
row("cvt", f"rnd?:{RNI} sat? dtype:f16 atype:f16", _ONE)
row("cvt", f"rnd?:{RNI} sat? dtype:f64 atype:f64", _ONE)
row("cvt", "dtype:f32 atype:bf16", _ONE, since="7.1", sm=80)
row("cvt", "ftz dtype:f32 atype:bf16", _ONE, since="7.8", sm=90)
row("cvt", f"rnd?:{RNI} dtype:bf16 atype:bf16", _ONE, since="7.8", sm=90)
row("cvt", f"rnd:{RND} dtype:bf16 atype:f64", _ONE, since="7.8", sm=90)
# between 16-bit types ptxas rounds to nearest if no rounding mode is given
row("cvt", f"rnd?:{RND} dtype:bf16 atype:f16", _ONE, since="7.8", sm=90)
row("cvt", "rnd:rm|rp dtype:bf16 atype:f32", _ONE, since="7.8", sm=90)
row("cvt", f"rnd?:{RND} dtype:f16 atype:bf16", _ONE, since="7.8", sm=90)
row("cvt", "dtype:f64 atype:bf16", _ONE, since="7.8", sm=90)
row("cvt", "rnd:rn|rz relu? satfinite? dtype:f16|bf16 atype:f32", "=d:dtype, a:atype", since="7.0", sm=80)
_TWO = "=d:dtype, a:atype, b:atype"
row("cvt", "rnd:rn|rz relu? satfinite? dtype:f16x2|bf16x2 atype:f32", _TWO, "cvt.packed", since="7.0", sm=80)
row(
    "cvt",
    "rnd:rs relu? satfinite? dtype:f16x2|bf16x2 atype:f32",
    f"{_TWO}, rbits!:b32",
    "cvt.packed",
    since="8.7",
    sm=100,
    family="100a|103a",
)
row("cvt", "rnd:rna satfinite? dtype:tf32 atype:f32", "=d:b32, a:atype", since="7.0", sm=80)
row("cvt", "rnd:rn|rz relu? dtype:tf32 atype:f32", "=d:b32, a:atype", since="7.8", sm=90)
row("cvt", "rnd:rn|rz relu? satfinite dtype:tf32 atype:f32", "=d:b32, a:atype", since="8.6", sm=100)

_F8 = "e4m3x2|e5m2x2"
_F6 = "e2m3x2|e3m2x2"
row(
    "cvt",
    f"rnd:rn satfinite relu? dtype:{_F8} atype:f32",
    "=d!:b16, a:atype, b:atype",
    "cvt.packed",
    since="8.1",
    sm=89,
)
row("cvt", f"rnd:rn satfinite relu? dtype:{_F8} atype:f16x2", "=d!:b16, a:atype", "cvt.packed", since="8.1", sm=89)
row("cvt", f"rnd:rn relu? dtype:f16x2 atype:{_F8}", "=d:dtype, a!:b16", "cvt.packed", since="8.1", sm=89)
row(
    "cvt",
    f"rnd:rn satfinite relu? dtype:{_F6} atype:f32",
    "=d!:b16, a:atype, b:atype",
    "cvt.packed",
    since="8.6",
    sm=100,
    family="a",
)
row(
    "cvt",
    "rnd:rn satfinite relu? dtype:e2m1x2 atype:f32",
    "=d!:b8, a:atype, b:atype",
    "cvt.packed",
    since="8.6",
    sm=100,
    family="a",
)
row("cvt", f"rnd:rn relu? dtype:f16x2 atype:{_F6}", "=d:dtype, a!:b16", "cvt.packed", since="8.6", sm=100, family="a")
row("cvt", "rnd:rn relu? dtype:f16x2 atype:e2m1x2", "=d:dtype, a!:b8", "cvt.packed", since="8.6", sm=100, family="a")
for source, held in ((f"{_F8}|{_F6}", "b16"), ("e2m1x2", "b8")):
    row(
        "cvt",
        f"rnd:rn satfinite? relu? dtype:bf16x2 atype:{source}",
        f"=d:dtype, a!:{held}",
        "cvt.packed",
        since="9.2",
        sm=100,
        family="a",
    )
row(
    "cvt",
    "rnd:rz|rp satfinite? dtype:ue8m0x2 atype:f32",
    "=d!:b16, a:atype, b:atype",
    "cvt.packed",
    since="8.6",
    sm=100,
    family="a",
)
row(
    "cvt",
    "rnd:rz|rp satfinite? dtype:ue8m0x2 atype:bf16x2",
    "=d!:b16, a:atype",
    "cvt.packed",
    since="8.6",
    sm=100,
    family="a",
)
row("cvt", "rnd:rn dtype:bf16x2 atype:ue8m0x2", "=d:dtype, a!:b16", "cvt.packed", since="8.6", sm=100, family="a")
row(
    "cvt",
    "rnd:rs relu? satfinite dtype:e4m3x4|e5m2x4|e2m3x4|e3m2x4 atype:f32",
    "=d!:b32, a*4:atype, rbits!:b32",
    "cvt.packed",
    since="8.7",
    sm=100,
    family="100a|103a",
)
row(
    "cvt",
    "rnd:rs relu? satfinite dtype:e2m1x4 atype:f32",
    "=d!:b16, a*4:atype, rbits!:b32",
    "cvt.packed",
    since="8.7",
    sm=100,
    family="100a|103a",
)
row("cvt", "pack sat dtype:u16|s16 atype:s32", "=d:b32, a:s32, b:s32", "cvt.pack", since="6.5", sm=72)
row("cvt", "pack sat dtype:u8|s8 atype:s32 ctype:b32", "=d:b32, a:s32, b:s32, c:b32", "cvt.pack", since="6.5", sm=72)
row(
    "cvt",
    "pack sat dtype:u2|s2|u4|s4 atype:s32 ctype:b32",
    "=d:b32, a:s32, b:s32, c:b32",
    "cvt.pack",
    since="6.5",
    sm=75,
)

_SPACES = "const|global|local|shared|shared::cta|shared::cluster|param|param::entry"
row("cvta", f"space:{_SPACES} type:u64", "=d, a&", since="2.0", sm=20)
row("cvta", f"to space:{_SPACES} type:u64", "=d, a", since="2.0", sm=20)
row("isspacep", f"space:{_SPACES}", "=p:pred, a!~:u32", since="2.0", sm=20)
