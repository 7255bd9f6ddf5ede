"""Atomics and reductions in memory."""

from kernbench.ptx.isa.rows._types import SCOPE
from kernbench.ptx.isa.syntax import Group

group = Group("Atomics", "atomic")
row = group.row

_SPACE = "space?:global|shared|shared::cta|shared::cluster"
_ATOM = f"sem?:relaxed|acquire|release|acq_rel scope?:{SCOPE} {_SPACE}"
_RED = f"sem?:relaxed|release scope?:{SCOPE} {_SPACE}"
_HINT = "hint?:L2::cache_hint"
_VECTORS = (
    ("op:add vec:v2|v4|v8 type:f16|bf16", True),
    ("op:add vec:v2|v4 type:f16x2|bf16x2", True),
    ("op:min|max vec:v2|v4|v8 type:f16|bf16", True),
    ("op:min|max vec:v2|v4 type:f16x2|bf16x2", True),
    ("op:add vec:v2|v4 type:f32", False),
)
# operations and types that atom and red share
_BOTH = (
    ("op:and|or|xor type:b32|b64", "1.2", 12),
    ("op:add type:u32|s32|u64|f32|f64", "1.2", 12),
    ("op:inc|dec type:u32", "1.2", 12),
    ("op:min|max type:u32|s32|u64|s64", "1.2", 12),
    ("op:add noftz type:f16|f16x2", "6.2", 60),
    ("op:add noftz type:bf16|bf16x2", "7.8", 90),
)

for rest, since, sm in _BOTH:
    row("atom", f"{_ATOM} {_HINT} {rest}", "=d, [a], b, policy:b64@hint", since=since, sm=sm)
    row("red", f"{_RED} {_HINT} {rest}", "[a], b, policy:b64@hint", since=since, sm=sm)
row("atom", f"{_ATOM} {_HINT} op:exch type:b32|b64", "=d, [a], b, policy:b64@hint", since="1.2", sm=12)
row("atom", f"{_ATOM} {_HINT} op:exch type:b128", "=d, [a], b!, policy:b64@hint", since="8.3", sm=90)
row("atom", f"{_ATOM} {_HINT} op:cas type:b16|b32|b64", "=d, [a], b, c, policy:b64@hint", since="1.2", sm=12)
row("atom", f"{_ATOM} {_HINT} op:cas type:b128", "=d, [a], b!, c!, policy:b64@hint", since="8.3", sm=90)
for rest, noftz in _VECTORS:
    head, types = rest.rsplit(" ", 1)
    rest = f"{head} {'noftz ' if noftz else ''}{types}"
    atom = _ATOM.replace(_SPACE, "space?:global")
    red = _RED.replace(_SPACE, "space?:global")
    row("atom", f"{atom} {_HINT} {rest}", "=d*vec, [a], b*vec, policy:b64@hint", since="8.1", sm=90)
    row("red", f"{red} {_HINT} {rest}", "[a], b*vec, policy:b64@hint", since="8.1", sm=90)
