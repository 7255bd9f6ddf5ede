"""Integer arithmetic."""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import LANE_WISE
from kernbench.ptx.isa.forms.syntax import Group
from kernbench.ptx.isa.forms.type_lists import INT, SIGNED

_ARITHMETIC = replace(LANE_WISE, arithmetic=True)
group = Group("Integer arithmetic", "int", _ARITHMETIC)
row = group.row
does = group.does

does("add.int", replace(_ARITHMETIC, law="sum"))
does("sub.int", replace(_ARITHMETIC, law="difference"))
does("mul.int", replace(_ARITHMETIC, law="product"))
does("mad.int", replace(_ARITHMETIC, law="product and sum"))
does("add.carry sub.carry mad.carry", replace(_ARITHMETIC, carry_flag=True))
does("div.int rem.int", replace(_ARITHMETIC, undefined_from="division"))

row("add", f"type:{INT}", "=d, a, b", "add.int")
row("add", "sat type:s32", "=d, a, b", "add.int")
row("add", "type:u16x2|s16x2", "=d, a, b", "add.int", since="8.0", sm=90)
row("sub", f"type:{INT}", "=d, a, b", "sub.int")
row("sub", "sat type:s32", "=d, a, b", "sub.int")
row("add", "cc type:u32|s32", "=d, a, b", "add.carry")
row("add", "cc type:u64|s64", "=d, a, b", "add.carry", since="4.3", sm=20)
row("addc", "cc? type:u32|s32", "=d, a, b", "add.carry")
row("addc", "cc? type:u64|s64", "=d, a, b", "add.carry", since="4.3", sm=20)
row("sub", "cc type:u32|s32", "=d, a, b", "sub.carry")
row("sub", "cc type:u64|s64", "=d, a, b", "sub.carry", since="4.3", sm=20)
row("subc", "cc? type:u32|s32", "=d, a, b", "sub.carry")
row("subc", "cc? type:u64|s64", "=d, a, b", "sub.carry", since="4.3", sm=20)
row("mul", f"part:lo|hi type:{INT}", "=d, a, b", "mul.int")
row("mul", "part:wide type:u16|s16|u32|s32", "=d:type*2, a, b", "mul.int")
row("mad", f"part:lo|hi type:{INT}", "=d, a, b, c", "mad.int")
row("mad", "part:hi sat type:s32", "=d, a, b, c", "mad.int")
row("mad", "part:wide type:u16|s16|u32|s32", "=d:type*2, a, b, c:type*2", "mad.int")
row("mad", "part:lo|hi cc type:u32|s32|u64|s64", "=d, a, b, c", "mad.carry", since="3.0", sm=20)
row("madc", "part:lo|hi cc? type:u32|s32|u64|s64", "=d, a, b, c", "mad.carry", since="3.0", sm=20)
row("mul24", "part:lo|hi type:u32|s32", "=d, a, b", "mul24")
row("mad24", "part:lo|hi type:u32|s32", "=d, a, b, c", "mad24")
row("mad24", "part:hi sat type:s32", "=d, a, b, c", "mad24")
row("sad", f"type:{INT}", "=d, a, b, c")
row("div", f"type:{INT}", "=d, a, b", "div.int")
row("rem", f"type:{INT}", "=d, a, b", "rem.int")
row("abs", f"type:{SIGNED}", "=d, a", "abs.int")
row("neg", f"type:{SIGNED}", "=d, a", "neg.int")
row("min", f"type:{INT}", "=d, a, b", "min.int")
row("max", f"type:{INT}", "=d, a, b", "max.int")
row("min", "type:u16x2", "=d, a, b", "min.int", since="8.0", sm=90)
row("max", "type:u16x2", "=d, a, b", "max.int", since="8.0", sm=90)
row("min", "relu? type:s16x2", "=d, a, b", "min.int", since="8.0", sm=90)
row("max", "relu? type:s16x2", "=d, a, b", "max.int", since="8.0", sm=90)
row("min", "relu type:s32", "=d, a, b", "min.int", since="8.0", sm=90)
row("max", "relu type:s32", "=d, a, b", "max.int", since="8.0", sm=90)
row("dp4a", "atype:u32|s32 btype:u32|s32", "=d:u32, a:u32, b:u32, c:u32", since="5.0", sm=61)
row("dp2a", "part:lo|hi atype:u32|s32 btype:u32|s32", "=d:u32, a:u32, b:u32, c:u32", since="5.0", sm=61)
