"""Asynchronous copies: cp.async, bulk and tensor copies, asynchronous stores, tensor maps."""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import Effects
from kernbench.ptx.isa.forms.syntax import Group
from kernbench.ptx.isa.forms.type_lists import SCOPE, TENSOR

group = Group("Asynchronous copies", "copy")
row = group.row
does = group.does

_COPY = Effects(reads=True, writes=True, asynchronous=True, activity="copies", unit="copies", event="bulk copy")
_GROUP_OF_COPIES = Effects(asynchronous=True, activity="copies", mutants=("dropped",))
# a lane's copies complete in the order of its groups: they need no actors beside the warps
does("cp.async", replace(_COPY, asynchronous=False, carries_undefined=True, event="async copy"))
does("cp.async.commit", replace(_GROUP_OF_COPIES, asynchronous=False, event="async copy commit"))
does(
    "cp.async.wait",
    replace(_GROUP_OF_COPIES, asynchronous=False, mutants=("dropped", "one more group"), event="async copy wait"),
)
does("cp.async.arrive", replace(_GROUP_OF_COPIES, mutants=("dropped", "another barrier"), event="async copy arrive"))
does("cp.bulk cp.tensor.load", replace(_COPY, mutants=("another barrier",)))
does("cp.tensor.im2col cp.tensor.store", _COPY)
does("cp.bulk.reduce cp.tensor.reduce", replace(_COPY, observes_order=True, activity="copies out", event="bulk reduce"))
does("cp.bulk.commit", replace(_GROUP_OF_COPIES, event="bulk commit"))
does(
    "cp.bulk.wait",
    replace(_GROUP_OF_COPIES, mutants=("dropped", "one more group", "sources only"), event="bulk wait"),
)
does("prefetch.bulk", Effects(orders=False, follows_from="lane", event="prefetch"))
_TO_CLUSTER = Effects(
    value="b",
    writes=True,
    asynchronous=True,
    activity="stores to its cluster",
    unit="copies",
    mutants=("another barrier",),
    event="remote store",
)
does("st.async", _TO_CLUSTER)
does("red.async", replace(_TO_CLUSTER, reads=True, observes_order=True))
does("st.bulk", Effects(writes=True, asynchronous=True, unit="copies", event="other"))
does("tensormap.replace", Effects(reads=True, writes=True, event="other"))
does(
    "tensormap.cp_fenceproxy",
    Effects(reads=True, writes=True, asynchronous=True, unit="copies", mutants=("dropped",), event="other"),
)

_HINT = "hint?:L2::cache_hint"
_POLICY = "policy:b64@hint"
_BYTES = "completion:mbarrier::complete_tx::bytes"
_FETCH = "fetch?:L2::64B|L2::128B|L2::256B"
# number of bytes that are read, or a predicate: none are
_LIMIT = "src_size%:u32?"
_TO_SHARED = f"dst:shared|shared::cta src:global {_HINT} {_FETCH}"

row(
    "cp",
    f"async cop:ca {_TO_SHARED}",
    f"[dst], [src], size#:u32, {_LIMIT}, {_POLICY}",
    "cp.async",
    since="7.0",
    sm=80,
)
row(
    "cp",
    f"async cop:cg {_TO_SHARED}",
    f"[dst], [src], size#:u32, {_LIMIT}, {_POLICY}",
    "cp.async",
    since="7.0",
    sm=80,
)
row("cp", "async op:commit_group", "", "cp.async.commit", since="7.0", sm=80)
row("cp", "async op:wait_group", "n#:u32", "cp.async.wait", since="7.0", sm=80)
row("cp", "async op:wait_all", "", "cp.async.wait", since="7.0", sm=80)
row(
    "cp",
    "async mbarrier arrive noinc? space?:shared|shared::cta type:b64",
    "[a]",
    "cp.async.arrive",
    since="7.0",
    sm=80,
)

row(
    "cp",
    f"async bulk dst:shared::cluster src:global {_BYTES} multicast?:multicast::cluster {_HINT}",
    f"[dst], [src], size:u32, [mbar], mask:u16@multicast, {_POLICY}",
    "cp.bulk",
    since="8.0",
    sm=90,
)
row(
    "cp",
    f"async bulk dst:shared::cta src:global {_BYTES} {_HINT}",
    f"[dst], [src], size:u32, [mbar], {_POLICY}",
    "cp.bulk",
    since="8.6",
    sm=90,
)
row(
    "cp",
    f"async bulk dst:shared::cluster src:shared::cta {_BYTES}",
    "[dst], [src], size:u32, [mbar]",
    "cp.bulk",
    since="8.0",
    sm=90,
)
row(
    "cp",
    f"async bulk dst:global src:shared::cta completion:bulk_group {_HINT}",
    f"[dst], [src], size:u32, {_POLICY}",
    "cp.bulk",
    since="8.0",
    sm=90,
)
row(
    "cp",
    f"async bulk dst:global src:shared::cta completion:bulk_group {_HINT} cp_mask",
    f"[dst], [src], size:u32, {_POLICY}, bytes:u16",
    "cp.bulk",
    since="8.6",
    sm=100,
)
row(
    "cp",
    f"async bulk prefetch level:L2 src:global {_HINT}",
    f"[src], size:u32, {_POLICY}",
    "prefetch.bulk",
    since="8.0",
    sm=90,
)
row("cp", "async bulk op:commit_group", "", "cp.bulk.commit", since="8.0", sm=90)
row("cp", "async bulk op:wait_group read?", "n#:u32", "cp.bulk.wait", since="8.0", sm=90)

_DIM = "dim:1d|2d|3d|4d|5d"
_TILE = "mode?:tile"
_MULTICAST = "multicast?:multicast::cluster"
_GROUP = "group:cta_group::1|cta_group::2"


def _load(dim: str, mode: str, operands: str, space: str, since: str, sm: int, family: str = "") -> None:
    """Rows of a tensor load, with and without a CTA group."""
    multicast, mask = (_MULTICAST, "mask:u16@multicast, ") if space == "shared::cluster" else ("", "")
    for group_slot, least, number, only in (("", since, sm, family), (_GROUP, "8.6", 100, TENSOR)):
        row(
            "cp",
            f"async bulk tensor {dim} dst:{space} src:global {mode} {_BYTES} {multicast} {group_slot} {_HINT}",
            f"[dst], <src>, [mbar], {operands}{mask}{_POLICY}",
            "cp.tensor.im2col" if "im2col::w" in mode else "cp.tensor.load",
            since=least,
            sm=number,
            family=only,
        )


for space, since in (("shared::cluster", "8.0"), ("shared::cta", "8.6")):
    offsets = "offsets*any:u16, "
    _load(_DIM, _TILE, "", space, since, 90)
    _load("dim:3d|4d|5d", "mode:im2col", offsets, space, since, 90)
    # sm_120 has these for the CTA's own shared memory
    anywhere = "a" if space == "shared::cta" else TENSOR
    _load("dim:3d|4d|5d", "mode:im2col::w", offsets, space, "8.6", 100, anywhere)
    _load("dim:3d|4d|5d", "mode:im2col::w::128", offsets, space, "8.6", 100, TENSOR)
    _load("dim:2d", "mode:tile::gather4", "", space, "8.6", 100, anywhere)
row(
    "cp",
    f"async bulk tensor {_DIM} dst:global src:shared::cta {_TILE} completion:bulk_group {_HINT}",
    f"<dst>, [src], {_POLICY}",
    "cp.tensor.store",
    since="8.0",
    sm=90,
)
row(
    "cp",
    f"async bulk tensor dim:3d|4d|5d dst:global src:shared::cta mode:im2col_no_offs completion:bulk_group {_HINT}",
    f"<dst>, [src], {_POLICY}",
    "cp.tensor.store",
    since="8.0",
    sm=90,
)
row(
    "cp",
    f"async bulk tensor dim:2d dst:global src:shared::cta mode:tile::scatter4 completion:bulk_group {_HINT}",
    f"<dst>, [src], {_POLICY}",
    "cp.tensor.store",
    since="8.6",
    sm=100,
    family=TENSOR,
)
row(
    "cp",
    f"async bulk prefetch tensor {_DIM} level:L2 src:global {_TILE} {_HINT}",
    f"<src>, {_POLICY}",
    "prefetch.bulk",
    since="8.0",
    sm=90,
)
for mode, sm, family in (("im2col", 90, ""), ("im2col::w|im2col::w::128", 100, TENSOR)):
    row(
        "cp",
        f"async bulk prefetch tensor dim:3d|4d|5d level:L2 src:global mode:{mode} {_HINT}",
        f"<src>, offsets*any:u16, {_POLICY}",
        "prefetch.bulk",
        since="8.0",
        sm=sm,
        family=family,
    )
row(
    "cp",
    f"async bulk prefetch tensor dim:2d level:L2 src:global mode:tile::gather4 {_HINT}",
    f"<src>, {_POLICY}",
    "prefetch.bulk",
    since="8.6",
    sm=100,
    family=TENSOR,
)
for dim, mode in ((_DIM, _TILE), ("dim:3d|4d|5d", "mode:im2col_no_offs")):
    row(
        "cp",
        f"reduce async bulk tensor {dim} dst:global src:shared::cta op:add|min|max|inc|dec|and|or|xor {mode} "
        f"completion:bulk_group {_HINT}",
        f"<dst>, [src], {_POLICY}",
        "cp.tensor.reduce",
        since="8.0",
        sm=90,
    )

_REDUCED = (
    ("shared::cluster", _BYTES, "op:and|or|xor type:b32", "", "[dst], [src], size:u32, [mbar]"),
    ("shared::cluster", _BYTES, "op:add|min|max type:u32|s32", "", "[dst], [src], size:u32, [mbar]"),
    ("shared::cluster", _BYTES, "op:add type:u64", "", "[dst], [src], size:u32, [mbar]"),
    ("shared::cluster", _BYTES, "op:inc|dec type:u32", "", "[dst], [src], size:u32, [mbar]"),
    ("global", "completion:bulk_group", "op:and|or|xor type:b32|b64", _HINT, f"[dst], [src], size:u32, {_POLICY}"),
    ("global", "completion:bulk_group", "op:add type:u32|s32|u64|f32|f64", _HINT, f"[dst], [src], size:u32, {_POLICY}"),
    ("global", "completion:bulk_group", "op:add noftz type:f16|bf16", _HINT, f"[dst], [src], size:u32, {_POLICY}"),
    (
        "global",
        "completion:bulk_group",
        "op:min|max type:u32|s32|u64|s64|f16|bf16",
        _HINT,
        f"[dst], [src], size:u32, {_POLICY}",
    ),
    ("global", "completion:bulk_group", "op:inc|dec type:u32", _HINT, f"[dst], [src], size:u32, {_POLICY}"),
)
for space, completion, operation, hint, operands in _REDUCED:
    row(
        "cp",
        f"reduce async bulk dst:{space} src:shared::cta {completion} {hint} {operation}",
        operands,
        "cp.bulk.reduce",
        since="8.0",
        sm=90,
    )

for types in ("vec?:v2|v4 type:b32|u32|s32|f32", "vec?:v2 type:b64|u64|s64|f64"):
    modifiers = f"async sem?:weak space?:shared::cluster {_BYTES} {types}"
    row("st", modifiers, "[a], b*vec, [mbar]", "st.async", since="8.1", sm=90)
row("st", "bulk sem?:weak space?:shared::cta", "[a], size:u64, value#:u64", "st.bulk", since="8.6", sm=100)
for operation in (
    "op:inc|dec type:u32",
    "op:min|max type:u32|s32",
    "op:add type:u32|s32|u64",
    "op:and|or|xor type:b32",
):
    row(
        "red",
        f"async sem:relaxed scope:cluster {_BYTES} space?:shared::cluster {operation}",
        "[a], b, [mbar]",
        "red.async",
        since="8.1",
        sm=90,
    )

_MAP = "space?:global|shared::cta object:b1024"
for fields, kind, operands in (
    ("global_address", "b64", "[a], value"),
    ("rank", "b32", "[a], value"),
    ("box_dim|global_dim|element_stride", "b32", "[a], index#:u32, value"),
    ("global_stride", "b64", "[a], index#:u32, value"),
    ("elemtype|interleave_layout|swizzle_mode|fill_mode", "b32", "[a], value#"),
):
    row(
        "tensormap",
        f"replace mode:tile field:{fields} {_MAP} type:{kind}",
        operands,
        "tensormap.replace",
        since="8.3",
        sm=90,
        family="a",
    )
row(
    "tensormap",
    "replace mode:tile field:swizzle_atomicity space?:global|shared::cta object:b1024 type:b32",
    "[a], value#",
    "tensormap.replace",
    since="8.6",
    sm=100,
    family="a",
)
row(
    "tensormap",
    f"cp_fenceproxy dst:global src:shared::cta kind:tensormap::generic sem:release scope:{SCOPE} sync aligned",
    "[dst], [src], size#:u32",
    "tensormap.cp_fenceproxy",
    since="8.3",
    sm=90,
)
