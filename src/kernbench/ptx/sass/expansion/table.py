"""The machine instructions that each PTX instruction usually becomes on sm_80 to sm_100, as a table of patterns.

The first row whose pattern matches the whole opcode (with modifiers) applies. A row may be empty: parameters are
operands of the instructions that use them; moves between registers and address space conversions need none. An opcode
without a row becomes one plain integer instruction. Divisions and roots are those of their fast paths.
"""

import re
from functools import lru_cache

_WIDE = r"[bsu]64"
# without .ftz, subnormal arguments are scaled before and results after
_SCALED = "FSETP.GEU.AND @FMUL {} @FMUL"

ROWS: tuple[tuple[str, str], ...] = (
    # parameters, moves, addresses
    (r"(ld|st)\.param.*", ""),
    (r"cvta.*|mov\.pred|isspacep.*|nop", ""),
    (r"mov\..*special", "S2R"),
    (r"mov\..*pack16", "PRMT"),
    (r"mov\..*", ""),
    (r"mapa.*", "PRMT"),
    # memory; matrices first, since their opcodes begin as those of plain loads and stores do
    (r"ldmatrix.*\.x4.*", "LDSM.16.M88.4"),
    (r"ldmatrix.*\.x2.*", "LDSM.16.M88.2"),
    (r"ldmatrix.*", "LDSM.16.M88"),
    (r"stmatrix.*\.x4.*", "STSM.16.M88.4"),
    (r"stmatrix.*\.x2.*", "STSM.16.M88.2"),
    (r"stmatrix.*", "STSM.16.M88"),
    (r"movmatrix.*", "MOVM.16.MT88"),
    (r"ld.*\.const.*", "LDC{size}"),
    (r"(ld|ldu|ld_acquire)\..*shared::cluster.*", "LD.E{size}"),
    (r"ld.*\.shared.*", "LDS{size}"),
    (r"ld.*\.local.*", "LDL{size}"),
    (r"(ld|ldu)\..*", "LDG.E{size}"),
    (r"st\.async.*", "STAS{size}"),
    (r"st.*shared::cluster.*", "ST.E{size}"),
    (r"st.*\.shared.*", "STS{size}"),
    (r"st.*\.local.*", "STL{size}"),
    (r"st\..*", "STG.E{size}"),
    (r"red\.async.*", "REDAS"),
    (r"(atom|red).*\.shared::cluster.*", "ATOM.E"),
    (r"(atom|red).*\.shared.*", "ATOMS{size}"),
    (r"atom.*", "ATOMG.E{size}"),
    (r"red\..*", "REDG.E{size}"),
    (r"multimem\.ld_reduce.*", "LDGMC.E{size}"),
    (r"multimem\.(st|red).*", "REDGMC.E{size}"),
    # asynchronous copies
    (r"cp\.async\.commit_group", "LDGDEPBAR"),
    (r"cp\.async\.wait.*", "DEPBAR.LE"),
    (r"cp\.async\.mbarrier.*", "ARRIVES.LDGSTSBAR.64"),
    (r"cp\.async\.c[ag].*", "LDGSTS.E.BYPASS.128"),
    (r"cp\.async\.bulk\.commit_group", "UTMACMDFLUSH"),
    (r"cp\.async\.bulk\.wait_group.*", "DEPBAR.LE"),
    (r"cp\.async\.bulk\.prefetch\.tensor.*", "R2UR R2UR UTMAPF.L2"),
    (r"cp\.async\.bulk\.prefetch.*", "R2UR R2UR UBLKPF"),
    (r"cp\.async\.bulk\.tensor.*global\.shared.*", "R2UR R2UR R2UR UTMASTG"),
    (r"cp\.async\.bulk\.tensor.*", "R2UR R2UR R2UR R2UR UTMALDG"),
    (r"cp\.async\.bulk.*", "R2UR R2UR R2UR UBLKCP"),
    (r"cp\.reduce\.async\.bulk\.tensor.*", "R2UR R2UR R2UR UTMAREDG"),
    (r"cp\.reduce\.async\.bulk.*", "R2UR R2UR R2UR UBLKRED"),
    (r"prefetch.*|applypriority.*|discard.*", "CCTL.E"),
    (r"tensormap.*", "LDS STS"),
    # matrix units
    (r"mma.*", "{mma}"),
    (r"wmma\.mma.*", "{mma}"),
    (r"wmma\.(load|store).*", "{fragment}"),
    (r"wgmma\.mma_async.*", "R2UR R2UR {mma}"),
    (r"wgmma\.fence.*", "WARPGROUP.ARRIVE"),
    # in machine code the last product of a group is marked instead
    (r"wgmma\.commit.*", "WARPGROUP.COMMIT"),
    (r"wgmma\.wait.*", "WARPGROUP.DEPBAR.LE"),
    (r"tcgen05\.mma.*", "R2UR R2UR R2UR UTCHMMA"),
    (r"tcgen05\.commit.*", "UTCBAR"),
    (r"tcgen05\.ld.*", "LDTM"),
    (r"tcgen05\.st.*", "STTM"),
    (r"tcgen05\.cp.*", "R2UR UTCCP"),
    (r"tcgen05\.shift.*", "UTCSHIFT"),
    (r"tcgen05\.(alloc|dealloc|relinquish).*", "UTCATOMSWS"),
    (r"tcgen05\.wait.*", "DEPBAR.LE"),
    (r"tcgen05\.fence.*", ""),
    # barriers, order
    (r"bar\.warp\.sync|barrier\.warp.*", "WARPSYNC"),
    (r"barrier\.cluster\.arrive.*", "UCGABAR_ARV"),
    (r"barrier\.cluster\.wait.*", "UCGABAR_WAIT"),
    (r"bar.*", "BAR.SYNC.DEFER_BLOCKING"),
    (r"mbarrier\.(try_wait|test_wait).*", "SYNCS.PHASECHK.TRANS64.TRYWAIT"),
    (r"mbarrier\.init.*", "SYNCS.EXCH.64"),
    (r"mbarrier\..*", "SYNCS.ARRIVE.TRANS64"),
    (r"(fence|membar)\.proxy.*", "FENCE.VIEW.ASYNC.S"),
    (r"(fence|membar).*", "MEMBAR.ALL.GPU ERRBAR CCTL.IVALL"),
    (r"griddepcontrol.*", "ACQBULK"),
    (r"setmaxnreg.*", "USETMAXREG"),
    (r"nanosleep.*", "NANOSLEEP"),
    # exchanges between lanes
    (r"shfl.*", "SHFL"),
    (r"vote.*|activemask.*", "VOTE"),
    (r"match.*", "MATCH"),
    (r"redux.*", "REDUX"),
    (r"elect.*", "ELECT"),
    # control
    (r"bra.*", "BRA"),
    (r"brx.*", "BRX"),
    (r"ret.*|exit.*|trap.*", "EXIT"),
    (r"call.*", "MOV CALL.REL.NOINC"),
    # arithmetic
    (r"(add|sub)(\.cc)?\.f64|(add|sub)\..*f64", "DADD"),
    (r"(add|sub)\..*f32x2", "FADD2"),
    (r"(add|sub)\..*f32", "FADD"),
    (r"(add|sub)\..*(f16|bf16)(x2)?", "HADD2"),
    (rf"(add|sub|addc|subc).*{_WIDE}", "IADD3 IADD3.X"),
    (r"(add|sub|addc|subc).*", "IADD3"),
    (r"(mul|mad)\.wide.*", "IMAD.WIDE"),
    (rf"(mul|mad)\.hi.*{_WIDE}", "IMAD.WIDE.U32 IMAD.WIDE.U32 IMAD.WIDE.U32.X IMAD.HI.U32 IADD3.X"),
    (rf"(mul|mad)24.*|(mul|mad|madc)(\.lo)?\..*{_WIDE}|(mul|mad)\.lo\.{_WIDE}", "IMAD IMAD IMAD.WIDE.U32 IMAD.IADD"),
    (r"(mul|mad|madc)\.hi.*", "IMAD.HI"),
    (r"mul\..*f64", "DMUL"),
    (r"mul\..*f32x2", "FMUL2"),
    (r"mul\..*f32", "FMUL"),
    (r"mul\..*(f16|bf16)(x2)?", "HMUL2"),
    (r"(fma|mad)\..*f64", "DFMA"),
    (r"(fma|mad)\..*f32x2", "FFMA2"),
    (r"(fma|mad)\..*f32", "FFMA"),
    (r"fma\..*(f16|bf16)(x2)?", "HFMA2"),
    (r"(mul|mad|madc).*", "IMAD"),
    (r"dp[24]a.*", "IDP"),
    (r"sad.*", "VABSDIFF"),
    (r"(div|rem)\.[su]64", " ".join(["IMAD.WIDE.U32 IADD3 IADD3.X IMAD"] * 18 + ["I2F.U64.RP MUFU.RCP F2I.U64.TRUNC"])),
    (r"(div|rem)\.u(16|32)", "I2F.U32.RP MUFU.RCP VIADD F2I.FTZ.U32.TRUNC.NTZ IMAD.MOV IMAD IMAD.HI.U32 IMAD.HI.U32 "
     "IMAD.MOV IMAD ISETP.GE.U32.AND @IADD3 @VIADD ISETP.GE.U32.AND @VIADD"),
    (r"(div|rem)\.s(16|32)", "IABS I2F.RP MUFU.RCP VIADD F2I.FTZ.U32.TRUNC.NTZ IMAD.MOV IMAD IMAD.HI.U32 IABS "
     "IMAD.HI.U32 IMAD.MOV IMAD ISETP.GT.U32.AND @IADD3 @VIADD ISETP.GE.U32.AND LOP3.LUT ISETP.GE.AND @VIADD @IADD3"),
    (r"(div)\.full\.ftz\.f32|div\.approx\.ftz\.f32", "MUFU.RCP FMUL"),
    (r"div\.(full|approx)\.f32", "FSETP.GT.AND @FMUL @FMUL FSETP.GEU.AND @FMUL @FMUL MUFU.RCP FMUL"),
    (r"div\..*f64", "MUFU.RCP64H DFMA DFMA DFMA DFMA DMUL DFMA DFMA DSETP BRA"),
    (r"div\..*f32", "MUFU.RCP FCHK FFMA FFMA FFMA FFMA FFMA FFMA BRA"),
    (r"abs\.[su]64", "SHF.R.S32.HI IADD3 IADD3.X LOP3.LUT"),
    (r"(abs|neg)\..*f(16|32|64).*", ""),
    (r"abs.*", "IABS"),
    (r"neg\..*64", "IADD3 IADD3.X"),
    (r"neg.*", "IADD3"),
    (r"(min|max)\..*f64", "DSETP SEL SEL"),
    (r"(min|max)\..*f32", "FMNMX"),
    (r"(min|max)\..*(f16|bf16).*", "HMNMX2"),
    (rf"(min|max)\..*{_WIDE}", "ISETP.LT.U32.AND ISETP.LT.AND.EX SEL SEL"),
    (r"(min|max).*", "VIMNMX"),
    (r"popc\.b64", "POPC POPC IADD3"),
    (r"popc.*", "POPC"),
    (r"(clz|bfind).*64", "FLO.U32 FLO.U32 SEL IADD3"),
    (r"(clz|bfind).*", "FLO.U32 IADD3"),
    (r"brev.*64", "BREV BREV"),
    (r"brev.*", "BREV"),
    (r"bfe.*64", "SHF.R.U64 SHF.R.U32.HI LOP3.LUT LOP3.LUT"),
    (r"bfe.*", "SHF.R.U32.HI SGXT.U32"),
    (r"bfi.*64", "SHF.L.U32 SHF.L.U64.HI LOP3.LUT LOP3.LUT"),
    (r"bfi.*", "BMSK SHF.L.U32 LOP3.LUT"),
    (r"szext.*|bmsk.*", "BMSK"),
    (r"fns.*", "IADD3 POPC FLO.U32 SEL"),
    (r"prmt.*", "PRMT"),
    (r"copysign.*|testp.*", "LOP3.LUT"),
    # predicates, selection, bits
    (rf"(setp|set)\..*{_WIDE}", "ISETP.LT.U32.AND ISETP.LT.AND.EX"),
    (r"(setp|set)\..*f64", "DSETP.LT.AND"),
    (r"(setp|set)\..*f32", "FSETP.LT.AND"),
    (r"(setp|set)\..*(f16|bf16).*", "HSETP2.LT.AND"),
    (r"(setp|set)\..*", "ISETP.LT.AND"),
    (rf"(selp|slct)\..*({_WIDE}|f64)", "SEL SEL"),
    (r"(selp|slct)\..*f32", "FSEL"),
    (r"(selp|slct).*", "SEL"),
    (r"(and|or|xor|not|cnot|lop3).*pred", "PLOP3.LUT"),
    (r"(and|or|xor|not|cnot|lop3).*64", "LOP3.LUT LOP3.LUT"),
    (r"(and|or|xor|not|cnot|lop3).*", "LOP3.LUT"),
    (r"shl.*64", "SHF.L.U32 SHF.L.U64.HI"),
    (r"shr.*64", "SHF.R.S64 SHF.R.S32.HI"),
    (r"(shl|shr|shf).*", "SHF.L.U32"),
    # conversions
    (r"cvt\.[bu]64\.[bu](8|16|32)", ""),
    (r"cvt\.(s64|u64)\.s(8|16|32)", "SHF.R.S32.HI"),
    (r"cvt\.[bsu](8|16|32)\.[bsu](32|64)", ""),
    (r"cvt\.[su]32\.[su](8|16)", "PRMT"),
    (r"cvt\.[bsu]\d+\.[bsu]\d+.*", "LOP3.LUT"),
    (r"cvt.*\.f32\.bf16", "IMAD.U32"),
    (r"cvt.*\.f32\.f16", "HADD2.F32"),
    (r"cvt.*(f16|bf16|e4m3|e5m2|e2m1).*\.f32", "F2FP.BF16.F32.PACK_AB"),
    (r"cvt.*f64.*f32|cvt.*f32.*f64", "F2F.F64.F32"),
    (r"cvt\..*[su](8|16|32)\.f32", "F2I.TRUNC.NTZ"),
    (r"cvt\..*[su]64\.f.*|cvt\..*[su]\d+\.f64", "F2I.S64.TRUNC"),
    (r"cvt\..*f32\.[su](8|16)", "I2F.S16"),
    (r"cvt\..*f32\.[su]32", "I2FP.F32.S32"),
    (r"cvt\..*f\d+\.[su]\d+", "I2F.S64"),
    (r"cvt\.r[nzmp]i.*", "FRND"),
    (r"cvt.*", "F2F"),
    # elementary functions
    (r"(ex2|lg2|rcp|sqrt|rsqrt|sin|cos|tanh)\..*f16.*|(ex2|tanh)\..*bf16.*", "MUFU.EX2"),
    (r"ex2\.approx\.ftz\.f32", "MUFU.EX2"),
    (r"ex2.*", _SCALED.format("MUFU.EX2")),
    (r"lg2\.approx\.ftz\.f32", "MUFU.LG2"),
    (r"lg2.*", "FSETP.GEU.AND @FMUL MUFU.LG2 @FADD"),
    (r"(sin|cos)\.approx.*", "FMUL.RZ MUFU.SIN"),
    (r"tanh.*", "MUFU.TANH"),
    (r"rcp\.approx\.ftz\.f32", "MUFU.RCP"),
    (r"rcp\.approx\.f32", "FSETP.GT.AND @FMUL MUFU.RCP @FMUL"),
    (r"rcp.*f64", "MUFU.RCP64H DFMA DFMA DFMA DFMA"),
    (r"rcp.*", "VIADD LOP3.LUT ISETP.GT.U32.AND BRA MUFU.RCP FFMA FADD FFMA"),
    (r"rsqrt\.approx\.ftz\.f32", "MUFU.RSQ"),
    (r"rsqrt.*f64", "MUFU.RSQ64H DMUL DFMA DFMA DFMA"),
    (r"rsqrt.*", _SCALED.format("MUFU.RSQ")),
    (r"sqrt\.approx.*", _SCALED.format("MUFU.SQRT")),
    (r"sqrt.*f64", "MUFU.RSQ64H DMUL DFMA DFMA DFMA DMUL DFMA DFMA"),
    (r"sqrt.*", "MUFU.RSQ VIADD ISETP.GT.U32.AND BRA FMUL.FTZ FMUL.FTZ FFMA FFMA"),
)  # fmt: skip

_COMPILED = tuple((re.compile(pattern), sequence.split()) for pattern, sequence in ROWS)
_UNKNOWN = ["IADD3"]


@lru_cache(maxsize=8192)
def sequence(opcode: str) -> tuple[str, ...]:
    """The machine instructions of a PTX opcode; predicated ones have `@` before their name."""
    for pattern, names in _COMPILED:
        if pattern.fullmatch(opcode):
            return tuple(names)
    return tuple(_UNKNOWN)


def is_known(opcode: str) -> bool:
    """Whether the table has a row for an opcode."""
    return any(pattern.fullmatch(opcode) for pattern, _ in _COMPILED)
