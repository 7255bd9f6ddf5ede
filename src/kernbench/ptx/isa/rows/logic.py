"""Logic, shifts and bit fields."""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import LANE_WISE
from kernbench.ptx.isa.forms.syntax import Group
from kernbench.ptx.isa.forms.type_lists import BITS

_BITWISE = replace(LANE_WISE, bitwise=True)
group = Group("Logic, shifts and bit fields", "int", _BITWISE)
row = group.row
does = group.does

does("and", replace(_BITWISE, law="and"))
does("or", replace(_BITWISE, law="or", parts=("a", "b")))
does("xor", replace(_BITWISE, law="xor"))
does("not", replace(_BITWISE, law="not"))
does("shl", replace(_BITWISE, law="shift left"))
does("lop3", replace(_BITWISE, parts=("a", "b", "c")))
does("bfi", replace(_BITWISE, law="insert", parts=("a", "b")))
does("prmt", replace(_BITWISE, law="permute", parts=("a", "b")))
does("fns", LANE_WISE)

row("and or xor", f"type:{BITS}", "=d, a, b")
row("and or xor", "type:pred", "=d:pred, a:pred, b:pred")
row("not", f"type:{BITS}", "=d, a")
row("not", "type:pred", "=d:pred, a:pred")
row("cnot", f"type:{BITS}", "=d, a")
row("lop3", "type:b32", "=d, a, b, c, lut#:u32", since="4.3", sm=50)
row("lop3", "bool:or|and type:b32", "=d|p:pred, a, b, c, lut#:u32, q:pred", since="8.2", sm=70)
row("shl", f"type:{BITS}", "=d, a, b:u32")
row("shr", f"type:{BITS}|u16|u32|u64|s16|s32|s64", "=d, a, b:u32")
row("shf", "dir:l|r mode:clamp|wrap type:b32", "=d, a, b, c:u32", since="3.1", sm=32)
row("bfe", "type:u32|u64|s32|s64", "=d, a, b:u32, c:u32", since="2.0", sm=20)
row("bfi", "type:b32|b64", "=f, a, b, c:u32, d:u32", since="2.0", sm=20)
row("bfind", "shiftamt? type:u32|u64|s32|s64", "=d:u32, a", since="2.0", sm=20)
row("brev", "type:b32|b64", "=d, a", since="2.0", sm=20)
row("clz popc", "type:b32|b64", "=d:u32, a", since="2.0", sm=20)
row("fns", "type:b32", "=d, mask:b32, base:b32, offset:s32", since="6.0", sm=30)
row("szext", "mode:clamp|wrap type:u32|s32", "=d, a, b:u32", since="7.6", sm=70)
row("bmsk", "mode:clamp|wrap type:b32", "=d:u32, a:u32, b:u32", since="7.6", sm=70)
row("prmt", "type:b32 mode?:f4e|b4e|rc8|ecl|ecr|rc16", "=d, a, b, c", since="2.0", sm=20)
