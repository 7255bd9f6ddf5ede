"""Atomics and reductions in memory."""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import Effects
from kernbench.ptx.isa.forms.syntax import Group
from kernbench.ptx.isa.forms.type_lists import SCOPE

group = Group("Atomics", "atomic")
row = group.row
does = group.does

_UPDATE = Effects(
    access="reduction",
    value="b",
    reads=True,
    writes=True,
    observes_order=True,
    follows_from="lane",
    whole_address=True,
)
does("red", replace(_UPDATE, event="reduction"))
does("atom", replace(_UPDATE, access="atomic", forwards=False, discardable=True, event="atomic"))

_ATOM = f"sem?:relaxed|acquire|release|acq_rel scope?:{SCOPE}"
_RED = f"sem?:relaxed|release scope?:{SCOPE}"
# cache hints are for global memory only
_GLOBAL = "space?:global hint?:L2::cache_hint"
_SHARED = "space:shared|shared::cta|shared::cluster"
_EITHER = "space?:global|shared|shared::cta|shared::cluster"
_VECTORS = (
    ("op:add vec:v2|v4|v8", "type:f16|bf16", True),
    ("op:add vec:v2|v4", "type:f16x2|bf16x2", True),
    ("op:min|max vec:v2|v4|v8", "type:f16|bf16", True),
    ("op:min|max vec:v2|v4", "type:f16x2|bf16x2", True),
    ("op:add vec:v2|v4", "type:f32", False),
)
# operations and types of both atom and red
_BOTH = (
    ("op:and|or|xor type:b32|b64", "1.2", 12),
    ("op:add type:u32|s32|u64|f32|f64", "1.2", 12),
    ("op:inc|dec type:u32", "1.2", 12),
    ("op:min|max type:u32|s32|u64|s64", "1.2", 12),
    ("op:add noftz type:f16|f16x2", "6.2", 60),
    ("op:add noftz type:bf16|bf16x2", "7.8", 90),
)

for rest, since, sm in _BOTH:
    for space in (_GLOBAL, _SHARED):
        row("atom", f"{_ATOM} {space} {rest}", "=d, [a], b, policy:b64@hint", since=since, sm=sm)
        row("red", f"{_RED} {space} {rest}", "[a], b, policy:b64@hint", since=since, sm=sm)
for space in (_GLOBAL, _SHARED):
    row("atom", f"{_ATOM} {space} op:exch type:b32|b64", "=d, [a], b, policy:b64@hint", since="1.2", sm=12)
    row("atom", f"{_ATOM} {space} op:exch type:b128", "=d, [a], b!, policy:b64@hint", since="8.4", sm=90)
row("atom", f"{_ATOM} {_EITHER} op:cas type:b32|b64", "=d, [a], b, c", since="1.2", sm=12)
row("atom", f"{_ATOM} {_EITHER} op:cas type:b16", "=d, [a], b, c", since="6.3", sm=70)
row("atom", f"{_ATOM} {_EITHER} op:cas type:b128", "=d, [a], b!, c!", since="8.4", sm=90)
for head, types, noftz in _VECTORS:
    rest = f"{head} {'noftz ' if noftz else ''}{types}"
    row("atom", f"{_ATOM} {_GLOBAL} {rest}", "=d*vec, [a], b*vec, policy:b64@hint", since="8.1", sm=90)
    row("red", f"{_RED} {_GLOBAL} {rest}", "[a], b*vec, policy:b64@hint", since="8.1", sm=90)
