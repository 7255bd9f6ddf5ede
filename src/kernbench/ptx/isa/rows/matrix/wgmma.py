"""Warpgroup matrix instructions (sm_90a)."""

from dataclasses import replace

from kernbench.ptx.isa.forms.effects import Effects
from kernbench.ptx.isa.forms.syntax import Group

group = Group("Warpgroup matrix instructions", "matrix")
does = group.does

_ASYNCHRONOUS = Effects(asynchronous=True, activity="wgmma", unit="tensor core")
does(
    "wgmma",
    replace(
        _ASYNCHRONOUS,
        reads=True,
        forwards=False,
        undefined_from="tiles",
        in_flight="multiply",
        event="warpgroup mma",
    ),
)
does("wgmma.fence", replace(_ASYNCHRONOUS, in_flight="fence", mutants=("dropped",), event="warpgroup fence"))
does("wgmma.commit", replace(_ASYNCHRONOUS, in_flight="commit", mutants=("dropped",), event="warpgroup commit"))
does(
    "wgmma.wait",
    replace(
        _ASYNCHRONOUS,
        ends_block=True,
        in_flight="wait",
        mutants=("dropped", "one more group"),
        event="warpgroup wait",
    ),
)

_ALL = tuple(range(8, 257, 8))
_COARSE = (8, 16, 24, *range(32, 257, 16))
_F8 = "e4m3|e5m2"
_TAIL = "scale_d:pred, scale_a#:s32, scale_b#:s32"
_TRANSPOSED = ", trans_a#:s32, trans_b#:s32"


def _shapes(columns: tuple[int, ...], depth: int) -> str:
    return "|".join(f"m64n{n}k{depth}" for n in columns)


def _row(modifiers: str, operands: str, meaning: str, since: str = "8.0") -> None:
    group.row("wgmma", modifiers, operands, meaning, since=since, sm=90, family="90a")


# depth, D type, types of A and B, columns, scales?, transposes?
_KINDS = (
    (16, "f16", "f16", "f16", _ALL, True),
    (16, "f32", "f16", "f16", _ALL, True),
    (16, "f32", "bf16", "bf16", _ALL, True),
    (8, "f32", "tf32", "tf32", _ALL, False),
    (32, "f16", _F8, _F8, _ALL, False),
    (32, "f32", _F8, _F8, _ALL, False),
)
for depth, dtype, atype, btype, columns, transposed in _KINDS:
    d = "+d*n/4:b32" if dtype == "f16" else "+d*n/2:f32"
    types = f"dtype:{dtype} atype:{atype} btype:{btype}"
    for sparse, factor, meta in (("", 1, ""), ("sp ", 2, "meta!:b32, selector#:u32, ")):
        head = f"mma_async {sparse}sync aligned shape:{_shapes(columns, depth * factor)} {types}"
        since = "8.2" if sparse else "8.0"
        both = _TRANSPOSED if transposed else ""
        only_b = ", trans_b#:s32" if transposed else ""
        _row(head, f"{d}, a_desc!:b64, b_desc!:b64, {meta}{_TAIL}{both}", "wgmma", since)
        _row(head, f"{d}, a*4:b32, b_desc!:b64, {meta}{_TAIL}{only_b}", "wgmma", since)
for sparse, factor, meta in (("", 1, ""), ("sp ", 2, "meta!:b32, selector#:u32, ")):
    for atype, btype in (("u8", "u8"), ("s8", "s8"), ("u8", "s8"), ("s8", "u8")):
        since = "8.4" if atype != btype else "8.2" if sparse else "8.0"
        shape = f"shape:{_shapes(_COARSE, 32 * factor)}"
        head = f"mma_async {sparse}sync aligned {shape} satfinite? dtype:s32 atype:{atype} btype:{btype}"
        _row(head, f"+d*n/2:s32, a_desc!:b64, b_desc!:b64, {meta}scale_d:pred", "wgmma", since)
        _row(head, f"+d*n/2:s32, a*4:b32, b_desc!:b64, {meta}scale_d:pred", "wgmma", since)
_BIT = f"mma_async sync aligned shape:{_shapes(_COARSE, 256)} dtype:s32 atype:b1 btype:b1 op:and popc"
_row(_BIT, "+d*n/2:s32, a_desc!:b64, b_desc!:b64, scale_d:pred", "wgmma")
_row(_BIT, "+d*n/2:s32, a*4:b32, b_desc!:b64, scale_d:pred", "wgmma")
_row("op:fence sync aligned", "", "wgmma.fence")
_row("op:commit_group sync aligned", "", "wgmma.commit")
_row("op:wait_group sync aligned", "n#:u32", "wgmma.wait")
