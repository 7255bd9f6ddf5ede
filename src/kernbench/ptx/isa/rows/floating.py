"""Floating-point arithmetic: f32, f64, f16, bf16, packed and mixed."""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import LANE_WISE
from kernbench.ptx.isa.forms.syntax import Group
from kernbench.ptx.isa.forms.type_lists import BRAIN, HALF, RND

_ARITHMETIC = replace(LANE_WISE, arithmetic=True)
group = Group("Floating-point arithmetic", "float", _ARITHMETIC)
row = group.row
does = group.does

does("add.float", replace(_ARITHMETIC, flops=1, fuses="sum"))
does("sub.float", replace(_ARITHMETIC, flops=1, fuses="difference"))
does("mul.float", replace(_ARITHMETIC, flops=1, fuses="product"))
does("div.float", replace(_ARITHMETIC, flops=1, fuses="quotient"))
does("neg.float", replace(_ARITHMETIC, fuses="negation"))
does("rcp sqrt rsqrt", replace(_ARITHMETIC, flops=1))
does("fma", replace(_ARITHMETIC, flops=2))

for opcode in ("add", "sub", "mul"):
    meaning = f"{opcode}.float"
    row(opcode, f"rnd?:{RND} ftz? sat? type:f32", "=d, a, b", meaning)
    row(opcode, f"rnd?:{RND} type:f64", "=d, a, b", meaning, cost="double")
    row(opcode, f"rnd?:{RND} ftz? type:f32x2", "=d, a, b", meaning, since="8.6", sm=100)
    row(opcode, f"rnd?:rn ftz? sat? type:{HALF}", "=d, a, b", meaning, since="4.2", sm=53, cost="half")
    row(opcode, f"rnd?:rn type:{BRAIN}", "=d, a, b", meaning, since="7.8", sm=90, cost="half")
for opcode in ("add", "sub"):
    row(
        opcode,
        f"rnd?:{RND} sat? type:f32 atype:f16|bf16",
        "=d, a!:atype, b:type",
        f"{opcode}.float",
        since="8.6",
        sm=100,
        family="a",
    )

row("fma", f"rnd:{RND} ftz? sat? type:f32", "=d, a, b, c", since="2.0", sm=20)
row("fma", f"rnd:{RND} type:f64", "=d, a, b, c", since="1.4", sm=13, cost="double")
row("fma", f"rnd:{RND} ftz? type:f32x2", "=d, a, b, c", since="8.6", sm=100)
row("fma", f"rnd:rn ftz? sat? type:{HALF}", "=d, a, b, c", since="4.2", sm=53, cost="half")
row("fma", f"rnd:rn ftz? relu type:{HALF}", "=d, a, b, c", since="7.0", sm=80, cost="half")
row("fma", f"rnd:rn relu? type:{BRAIN}", "=d, a, b, c", since="7.0", sm=80, cost="half")
row("fma", f"rnd:rn oob relu? type:{HALF}|{BRAIN}", "=d, a, b, c", since="8.1", sm=90, cost="half")
row("fma", f"rnd:{RND} sat? type:f32 atype:f16|bf16", "=d, a!:atype, b!:atype, c", since="8.6", sm=100, family="a")
row("mad", f"rnd:{RND} ftz? sat? type:f32", "=d, a, b, c", "fma")
row("mad", f"rnd:{RND} type:f64", "=d, a, b, c", "fma", cost="double")

row("div", "mode:approx|full ftz? type:f32", "=d, a, b", "div.float", cost="special")
row("div", f"rnd:{RND} ftz? type:f32", "=d, a, b", "div.float", cost="special")
row("div", f"rnd:{RND} type:f64", "=d, a, b", "div.float", cost="double")
for opcode in ("rcp", "sqrt"):
    row(opcode, "mode:approx ftz? type:f32", "=d, a", cost="special")
    row(opcode, f"rnd:{RND} ftz? type:f32", "=d, a", cost="special")
    row(opcode, f"rnd:{RND} type:f64", "=d, a", cost="double")
row("rcp", "mode:approx ftz type:f64", "=d, a", since="2.1", sm=20, cost="special")
row("rsqrt", "mode:approx ftz? type:f32", "=d, a", cost="special")
row("rsqrt", "mode:approx ftz? type:f64", "=d, a", cost="special")
row("sin cos lg2 ex2", "mode:approx ftz? type:f32", "=d, a", since="1.4", cost="special")
row("ex2", f"mode:approx type:{HALF}", "=d, a", since="7.0", sm=75, cost="special")
row("ex2", f"mode:approx ftz type:{BRAIN}", "=d, a", since="7.8", sm=90, cost="special")
row("tanh", "mode:approx type:f32", "=d, a", since="7.0", sm=75, cost="special")
row("tanh", f"mode:approx type:{HALF}", "=d, a", since="7.0", sm=75, cost="special")
row("tanh", f"mode:approx type:{BRAIN}", "=d, a", since="7.8", sm=90, cost="special")

for opcode in ("abs", "neg"):
    meaning = f"{opcode}.float"
    row(opcode, "ftz? type:f32", "=d, a", meaning)
    row(opcode, "type:f64", "=d, a", meaning, cost="double")
    since = "6.5" if opcode == "abs" else "6.0"
    row(opcode, f"ftz? type:{HALF}", "=d, a", meaning, since=since, sm=53, cost="half")
    row(opcode, f"type:{BRAIN}", "=d, a", meaning, since="7.0", sm=80, cost="half")
for opcode in ("min", "max"):
    meaning = f"{opcode}.float"
    row(opcode, "ftz? NaN? type:f32", "=d, a, b", meaning)
    row(opcode, "ftz? NaN? xorsign abs type:f32", "=d, a, b", meaning, since="7.2", sm=86)
    row(opcode, "ftz? NaN? abs? type:f32", "=d, a, b, c", meaning, since="8.8", sm=100)
    row(opcode, "type:f64", "=d, a, b", meaning, cost="double")
    row(opcode, f"ftz? NaN? type:{HALF}", "=d, a, b", meaning, since="7.0", sm=80, cost="half")
    row(opcode, f"ftz? NaN? xorsign abs type:{HALF}", "=d, a, b", meaning, since="7.2", sm=86, cost="half")
    row(opcode, f"NaN? type:{BRAIN}", "=d, a, b", meaning, since="7.0", sm=80, cost="half")
    row(opcode, f"NaN? xorsign abs type:{BRAIN}", "=d, a, b", meaning, since="7.2", sm=86, cost="half")
row("testp", "op:finite|infinite|number|notanumber|normal|subnormal type:f32|f64", "=p:pred, a", since="2.0", sm=20)
row("copysign", "type:f32|f64", "=d, a, b", since="2.0", sm=20)
