"""Tensor memory and the fifth-generation tensor core: sm_100 and sm_103 (one family), sm_101 and sm_110.

Which target has which form is as ptxas 13.0 accepts it: sm_103 has no integers, sm_101 and sm_110 no scale of D;
family targets ("f") have neither integers, shifts, sparse 4-bit floats nor the older names of scale vectors.
"""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import Effects
from kernbench.ptx.isa.forms.syntax import Group
from kernbench.ptx.isa.forms.type_lists import TENSOR, TENSOR_EXACT

group = Group("Tensor memory and tcgen05", "matrix")
does = group.does

_TENSOR = Effects(acts_on="tensor memory", asynchronous=True, unit="tensor core")
_DROPPED = replace(_TENSOR, mutants=("dropped",))
_MULTIPLY = replace(_TENSOR, reads=True, activity="tcgen05.mma", event="tensor mma")
does("tcgen05.alloc", replace(_DROPPED, ends_block=True, writes=True, allocates=True, event="tensor allocate"))
does("tcgen05.dealloc tcgen05.relinquish", replace(_DROPPED, event="tensor free"))
does(
    "tcgen05.ld",
    replace(
        _TENSOR,
        access="tensor load",
        reads=True,
        forwards=False,
        undefined_from="tensor memory",
        in_flight="load",
        activity="reads tensor memory",
        event="tensor load",
    ),
)
does(
    "tcgen05.st",
    replace(
        _TENSOR,
        access="tensor store",
        activity="writes tensor memory",
        unit="tensor memory stores",
        event="tensor store",
    ),
)
does("tcgen05.wait", replace(_TENSOR, in_flight="loaded", mutants=("dropped", "other wait"), event="tensor wait"))
does("tcgen05.fence", replace(_DROPPED, fences_tensor=True, event="tensor fence"))
does("tcgen05.mma tcgen05.mma.ws tcgen05.mma.sp tcgen05.mma.ws.sp", _MULTIPLY)
does("tcgen05.cp", replace(_TENSOR, reads=True, activity="tcgen05.cp", event="tensor copy"))
does("tcgen05.shift", replace(_TENSOR, event="tensor shift"))
does("tcgen05.commit", replace(_TENSOR, mutants=("dropped", "another barrier"), event="tensor commit"))

_GROUP = "group:cta_group::1|cta_group::2"


def _row(modifiers: str, operands: str, meaning: str, since: str = "8.6", family: str = TENSOR) -> None:
    group.row("tcgen05", modifiers, operands, meaning, since=since, sm=100, family=family)


_row(f"op:alloc {_GROUP} sync aligned space?:shared::cta type:b32", "[dst], columns:u32", "tcgen05.alloc")
_row(f"op:dealloc {_GROUP} sync aligned type:b32", "taddr, columns:u32", "tcgen05.dealloc")
_row(f"op:relinquish_alloc_permit {_GROUP} sync aligned", "", "tcgen05.relinquish")

_COUNTS = "x1|x2|x4|x8|x16|x32|x64|x128"
# shape, repeats, registers per repeat, further operands
_SHAPES = (
    ("32x32b", _COUNTS, "", ""),
    ("16x64b", _COUNTS, "", ""),
    ("16x128b", _COUNTS.removesuffix("|x128"), "*2", ""),
    ("16x256b", _COUNTS.removesuffix("|x64|x128"), "*4", ""),
    ("16x32bx2", _COUNTS, "", ", split#:u32"),
)
for shape, counts, factor, tail in _SHAPES:
    head = f"sync aligned shape:{shape} num:{counts}"
    _row(f"op:ld {head} pack?:pack::16b type:b32", f"=r*num{factor}, [taddr]{tail}", "tcgen05.ld")
    _row(f"op:st {head} unpack?:unpack::16b type:b32", f"[taddr]{tail}, r*num{factor}", "tcgen05.st")
_row("op:wait::ld|wait::st sync aligned", "", "tcgen05.wait")
_row("op:fence::before_thread_sync|fence::after_thread_sync", "", "tcgen05.fence")

_FORMAT = "format:b8x16 sformat:b6x16_p32|b4x16_p64"
for shape in (
    "shape:128x256b|4x256b|128x128b",
    "shape:64x128b multicast:warpx2::02_13|warpx2::01_23",
    "shape:32x128b multicast:warpx4",
):
    _row(f"op:cp {_GROUP} {shape}", "[taddr], s_desc!:b64", "tcgen05.cp")
    _row(f"op:cp {_GROUP} {shape} {_FORMAT}", "[taddr], s_desc!:b64", "tcgen05.cp")
_row(f"op:shift {_GROUP} down", "[taddr]", "tcgen05.shift", family=TENSOR_EXACT)
_row(
    f"op:commit {_GROUP} completion:mbarrier::arrive::one space?:shared::cluster multicast?:multicast::cluster "
    "type:b64",
    "[mbar], mask!:u16@multicast",
    "tcgen05.commit",
)

_USES = ("fill", "use", "lastuse", "discard")
_COLLECTOR = "collector?:" + "|".join(f"collector::a::{use}" for use in _USES)
# A's operand, and the collector modifiers that it allows
_A_FORMS = (
    ("a_desc!:b64", _COLLECTOR),
    ("[a]", _COLLECTOR),
    ("[a]", "ashift collector?:collector::a::lastuse|collector::a::discard"),
)
_COLLECTOR_B = "|".join(f"collector::b{n}::{use}" for n in range(4) for use in _USES)
_INTEGER = "100a|101a|110a"
_KINDS = (
    ("kind:kind::f16|kind::tf32", "", TENSOR),
    ("kind:kind::f16|kind::tf32", ", scale_d#:u32", "100f"),
    ("kind:kind::f8f6f4", "", TENSOR),
    ("kind:kind::i8", "", _INTEGER),
)
# kind and vector, version, targets; sparse 4-bit floats are in no family
_BLOCK = (
    ("kind:kind::mxf8f6f4 block_scale vector:scale_vec::1X", "8.6", TENSOR_EXACT),
    ("kind:kind::mxf8f6f4 block_scale vector?:block32", "8.8", TENSOR),
    ("kind:kind::mxf4 block_scale vector:scale_vec::2X", "8.6", TENSOR_EXACT),
    ("kind:kind::mxf4 block_scale vector?:block32", "8.8", TENSOR),
    ("kind:kind::mxf4nvf4 block_scale vector:scale_vec::2X|scale_vec::4X", "8.7", TENSOR_EXACT),
    ("kind:kind::mxf4nvf4 block_scale vector:block16|block32", "8.8", TENSOR),
)
_WS_KINDS = (("kind:kind::f16|kind::tf32|kind::f8f6f4", TENSOR), ("kind:kind::i8", _INTEGER))
for a, collector in _A_FORMS:
    for sparse, meta, meaning in (("", "", "tcgen05.mma"), ("sp ", "[meta], ", "tcgen05.mma.sp")):
        operands = f"[d], {a}, b_desc!:b64, {meta}idesc:u32"
        for kind, scale, family in _KINDS:
            _row(
                f"op:mma {sparse}{_GROUP} {kind} {collector}",
                f"{operands}, lanes*any:b32?, enable_d:pred{scale}",
                meaning,
                family=family,
            )
        if "ashift" in collector:
            continue
        for kind, since, family in _BLOCK:
            _row(
                f"op:mma {sparse}{_GROUP} {kind} {_COLLECTOR}",
                f"{operands}, [scale_a], [scale_b], enable_d:pred",
                meaning,
                since,
                TENSOR_EXACT if sparse and "mxf4" in kind else family,
            )
        for kind, family in _WS_KINDS:
            _row(
                f"op:mma ws {sparse}group:cta_group::1 {kind} collector?:{_COLLECTOR_B}",
                f"{operands}, enable_d:pred, zero_mask:b64?",
                meaning.replace("mma", "mma.ws"),
                family=family,
            )
