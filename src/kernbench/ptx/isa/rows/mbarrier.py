"""mbarrier objects, cluster launch control and multimem."""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import Effects
from kernbench.ptx.isa.forms.syntax import Group

group = Group("mbarrier, cluster launch control and multimem", "sync")
row = group.row
does = group.does

_BARRIER = Effects(reads=True, writes=True, acts_on="mbarrier", asynchronous=True)
does(
    "mbarrier.init",
    replace(_BARRIER, mutants=("dropped", "count wrong by one", "another barrier"), event="mbarrier init"),
)
does("mbarrier.inval", replace(_BARRIER, mutants=("dropped",), event="mbarrier inval"))
does("mbarrier.tx", replace(_BARRIER, mutants=("dropped", "bytes wrong", "another barrier"), event="mbarrier expect"))
_ARRIVES_WRONG = ("dropped", "relaxed", "narrower", "counts twice", "bytes wrong", "expects nothing", "another barrier")
does("mbarrier.arrive", replace(_BARRIER, discardable=True, mutants=_ARRIVES_WRONG, event="mbarrier arrive"))
_WAITS_WRONG = ("not waited for", "other parity", "relaxed", "narrower", "another barrier")
does(
    "mbarrier.wait",
    replace(
        _BARRIER,
        polls=True,
        writes=False,
        ends_block=True,
        observes_order=True,
        mutants=_WAITS_WRONG,
        event="mbarrier wait",
    ),
)
does("mbarrier.pending", Effects(asynchronous=True))
does(
    "cluster.cancel",
    Effects(writes=True, asynchronous=True, unit="copies", event="other", cancels_blocks=True),
)
does("cluster.query", Effects())
does("multimem.ld_reduce", Effects(reads=True, observes_order=True, whole_address=True, event="other"))
does("multimem.st", Effects(writes=True, observes_order=True, whole_address=True, event="other"))
does("multimem.red", Effects(reads=True, writes=True, observes_order=True, whole_address=True, event="other"))

_CTA = "space?:shared|shared::cta"
_ANY = "space?:shared|shared::cta|shared::cluster"
_SCOPE = "scope:cta|cluster"

row("mbarrier", f"op:init {_CTA} type:b64", "[a], count:u32", "mbarrier.init", since="7.0", sm=80)
row("mbarrier", f"op:inval {_CTA} type:b64", "[a]", "mbarrier.inval", since="7.0", sm=80)
for order in ("", f"sem:relaxed {_SCOPE}"):
    modifiers = f"op:expect_tx|complete_tx {order} {_ANY} type:b64"
    row("mbarrier", modifiers, "[a], bytes:u32", "mbarrier.tx", since="8.0", sm=90)
_ARRIVE = "op:arrive|arrive_drop"
row("mbarrier", f"{_ARRIVE} {_CTA} type:b64", "=state, [a]", "mbarrier.arrive", since="7.0", sm=80)
for order, since in (("", "8.0"), (f"sem:release {_SCOPE}", "8.0"), (f"sem:relaxed {_SCOPE}", "8.6")):
    head = f"{order} {_ANY} type:b64"
    row("mbarrier", f"{_ARRIVE} {head}", "=state, [a], count:u32?", "mbarrier.arrive", since=since, sm=90)
    row("mbarrier", f"{_ARRIVE} expect_tx {head}", "=state, [a], bytes:u32", "mbarrier.arrive", since=since, sm=90)
for order, since, sm in (("", "7.0", 80), ("sem:release scope:cta", "8.0", 80)):
    modifiers = f"{_ARRIVE} noComplete {order} {_CTA} type:b64"
    row("mbarrier", modifiers, "=state, [a], count:u32", "mbarrier.arrive", since=since, sm=sm)
for order, since, sm in (("", "7.0", 80), (f"sem:acquire {_SCOPE}", "8.0", 90), (f"sem:relaxed {_SCOPE}", "8.6", 90)):
    head = f"{order} {_CTA} type:b64"
    row("mbarrier", f"op:test_wait {head}", "=p:pred, [a], state", "mbarrier.wait", since=since, sm=sm)
    row(
        "mbarrier",
        f"op:test_wait parity {head}",
        "=p:pred, [a], phase:u32",
        "mbarrier.wait",
        since=max(since, "7.1"),
        sm=sm,
    )
    since, operands = max(since, "7.8"), "=p:pred, [a], {}, timeout:u32?"
    row("mbarrier", f"op:try_wait {head}", operands.format("state"), "mbarrier.wait", since=since, sm=90)
    row("mbarrier", f"op:try_wait parity {head}", operands.format("phase:u32"), "mbarrier.wait", since=since, sm=90)
row("mbarrier", "op:pending_count type:b64", "=d:u32, state", "mbarrier.pending", since="7.0", sm=80)

_CANCEL = "clusterlaunchcontrol"
_TRY = "op:try_cancel async space?:shared::cta completion:mbarrier::complete_tx::bytes {} type:b128"
row(_CANCEL, _TRY.format(""), "[a], [mbar]", "cluster.cancel", since="8.6", sm=100)
_EVERYWHERE = _TRY.format("multicast:multicast::cluster::all")
row(_CANCEL, _EVERYWHERE, "[a], [mbar]", "cluster.cancel", since="8.6", sm=100, family="a")
row(
    _CANCEL,
    "op:query_cancel field:is_canceled dtype:pred type:b128",
    "=p:pred, a!",
    "cluster.query",
    since="8.6",
    sm=100,
)
row(
    _CANCEL,
    "op:query_cancel field:get_first_ctaid vec:v4 dtype:b32 type:b128",
    "=d*4:b32, a!",
    "cluster.query",
    since="8.6",
    sm=100,
)
row(
    _CANCEL,
    "op:query_cancel field:get_first_ctaid::x|get_first_ctaid::y|get_first_ctaid::z dtype:b32 type:b128",
    "=d:b32, a!",
    "cluster.query",
    since="8.6",
    sm=100,
)

_SCOPED = "sem:relaxed|{} scope:cta|cluster|gpu|sys space?:global"
_LOAD = ("sem?:weak space?:global", _SCOPED.format("acquire"))
_STORE = ("sem?:weak space?:global", _SCOPED.format("release"))
_REDUCE = ("space?:global", _SCOPED.format("release"))
_INTEGERS = ("op:min|max type:u32|s32|u64|s64", "op:add type:u32|s32|u64", "op:and|or|xor type:b32|b64")
_EXTREMA = ("op:min|max vec:v2|v4|v8 type:f16|bf16", "op:min|max vec?:v2|v4 type:f16x2|bf16x2")
_SUMS = ("op:add vec?:v2|v4 type:f32", "op:add type:f64")
_HALVES = ("op:add {}vec:v2|v4|v8 type:f16|bf16", "op:add {}vec?:v2|v4 type:f16x2|bf16x2")
for order in _LOAD:
    for operation in _INTEGERS:
        row("multimem", f"ld_reduce {order} {operation}", "=d, [a]", "multimem.ld_reduce", since="8.1", sm=90)
    for operation in (*_EXTREMA, *_SUMS, *(text.format("acc?:acc::f32 ") for text in _HALVES)):
        row("multimem", f"ld_reduce {order} {operation}", "=d*vec, [a]", "multimem.ld_reduce", since="8.1", sm=90)
for order in _STORE:
    row("multimem", f"st {order} type:b32|b64|u32|u64|s32|s64|f64", "[a], b", "multimem.st", since="8.1", sm=90)
    row("multimem", f"st {order} vec?:v2|v4 type:f16x2|bf16x2|f32", "[a], b*vec", "multimem.st", since="8.1", sm=90)
    row("multimem", f"st {order} vec:v2|v4|v8 type:f16|bf16", "[a], b*vec", "multimem.st", since="8.1", sm=90)
for order in _REDUCE:
    for operation in _INTEGERS:
        row("multimem", f"red {order} {operation}", "[a], b", "multimem.red", since="8.1", sm=90)
    for operation in (*_SUMS, *(text.format("") for text in _HALVES)):
        row("multimem", f"red {order} {operation}", "[a], b*vec", "multimem.red", since="8.1", sm=90)
