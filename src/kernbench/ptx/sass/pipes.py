"""The pipe and operation of machine instructions: one row for each family of opcodes.

An opcode without a row is taken for a plain integer instruction, or one of the uniform datapath if its name begins
with U; the streams list such opcodes. Throughputs and latencies of the pipes are in the GPU's file.
"""

from typing import NamedTuple

from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.sass.streams import Act, Pipe


class Family(NamedTuple):
    """Opcodes that do the same on one pipe, and the kinds of recorded events that they correspond to."""

    opcodes: str
    pipe: Pipe
    act: Act = Act.NONE
    kinds: tuple[Kind, ...] = ()


# the matrix kinds are those of wmma fragments, most of which are moved by plain loads and stores
_LOADS = (Kind.GLOBAL_LOAD, Kind.SHARED_LOAD, Kind.LOCAL_LOAD, Kind.CLUSTER_LOAD, Kind.MATRIX_LOAD)
_STORES = (
    Kind.GLOBAL_STORE,
    Kind.SHARED_STORE,
    Kind.LOCAL_STORE,
    Kind.CLUSTER_STORE,
    Kind.REMOTE_STORE,
    Kind.MATRIX_STORE,
)
_ATOMICS = (Kind.GLOBAL_ATOMIC, Kind.GLOBAL_REDUCTION, Kind.SHARED_ATOMIC, Kind.CLUSTER_ATOMIC, Kind.REMOTE_STORE)
_MBARRIER = (
    Kind.MBARRIER_INIT,
    Kind.MBARRIER_ARRIVE,
    Kind.MBARRIER_EXPECT,
    Kind.MBARRIER_WAIT,
    Kind.MBARRIER_INVAL,
)
_TENSOR = (
    Kind.TENSOR_MMA,
    Kind.TENSOR_COPY,
    Kind.TENSOR_LOAD,
    Kind.TENSOR_STORE,
    Kind.TENSOR_WAIT,
    Kind.TENSOR_COMMIT,
    Kind.TENSOR_FENCE,
    Kind.TENSOR_ALLOCATE,
    Kind.TENSOR_FREE,
    Kind.TENSOR_SHIFT,
)
_WAITS = (Kind.ASYNC_COPY_WAIT, Kind.BULK_WAIT, Kind.TENSOR_WAIT)
_BULK = (Kind.BULK_LOAD, Kind.BULK_STORE, Kind.BULK_REDUCE, Kind.BULK_CLUSTER, Kind.BULK_MULTICAST, Kind.PREFETCH)

FAMILIES = (
    Family("FADD FMUL FFMA FADD2 FMUL2 FFMA2 FADD32I FMUL32I FFMA32I FSWZADD", Pipe.FMA),
    # f16 to f32 conversion is an addition that shares the multiplication pipe
    Family("IMAD IMUL IMAD32I XMAD IDP IDP4A HADD2.F32", Pipe.MULTIPLY),
    Family("IMAD.HI IMAD.WIDE", Pipe.WIDE),
    Family("IADD IADD2 IADD3 IADD32I ISCADD ISCADD32I VIADD VABSDIFF VABSDIFF4 IABS LEA", Pipe.INTEGER),
    Family("LOP LOP3 LOP32I SHF SHL SHR BMSK SGXT PRMT SEL MOV MOV32I", Pipe.INTEGER),
    Family("ISETP ICMP PLOP3 PSETP P2R R2P FSETP FSEL FSET FCHK FCMP LEPC", Pipe.INTEGER),
    Family("FMNMX FMNMX3 IMNMX VIMNMX VIMNMX3 VIADDMNMX HMNMX2 VHMNMX", Pipe.MINMAX),
    Family("HADD2 HADD2_32I HMUL2 HMUL2_32I HFMA2 HFMA2_32I HSET2 HSETP2", Pipe.HALF2),
    Family("DADD DMUL DFMA DSETP DMNMX", Pipe.DOUBLE),
    Family("F2FP I2FP I2I F2IP I2IP", Pipe.CONVERT),
    # conversions from and to integers and doubles, rounding and bit counts share the unit of elementary functions
    # (MUFU)
    Family("MUFU F2F F2I I2F FRND POPC FLO BREV", Pipe.MUFU),
    Family("SHFL", Pipe.SHUFFLE),
    Family("VOTE VOTEU MATCH REDUX CREDUX ELECT", Pipe.VOTE),
    Family("LDG LD LDGMC", Pipe.GLOBAL, Act.LOAD, (*_LOADS, Kind.OTHER)),
    Family("STG ST", Pipe.GLOBAL, Act.STORE, (*_STORES, Kind.OTHER)),
    Family("ATOMG ATOM", Pipe.GLOBAL, Act.ATOMIC, (*_ATOMICS, Kind.OTHER)),
    Family("REDG RED REDGMC", Pipe.GLOBAL, Act.REDUCTION, (*_ATOMICS, Kind.OTHER)),
    Family("CCTL CCTLL CCTLT", Pipe.GLOBAL, Act.PREFETCH, (Kind.PREFETCH,)),
    Family("LDL", Pipe.LOCAL, Act.LOAD, _LOADS),
    Family("STL", Pipe.LOCAL, Act.STORE, _STORES),
    Family("LDS", Pipe.SHARED, Act.LOAD, _LOADS),
    Family("STS", Pipe.SHARED, Act.STORE, _STORES),
    Family("STAS", Pipe.SHARED, Act.STORE, (Kind.REMOTE_STORE, Kind.CLUSTER_STORE)),
    Family("REDAS", Pipe.SHARED, Act.REDUCTION, (Kind.REMOTE_STORE, Kind.CLUSTER_ATOMIC)),
    Family("ATOMS", Pipe.SHARED, Act.ATOMIC, _ATOMICS),
    Family("LDSM", Pipe.LDMATRIX, Act.LOAD, (Kind.MATRIX_LOAD,)),
    Family("STSM", Pipe.STMATRIX, Act.STORE, (Kind.MATRIX_STORE,)),
    Family("MOVM", Pipe.SHUFFLE, Act.NONE, (Kind.OTHER,)),
    Family("LDC LDCU ULDC", Pipe.CONSTANT, Act.LOAD, (Kind.CONSTANT_LOAD,)),
    Family("LDGSTS", Pipe.CP_ASYNC, Act.LOAD, (Kind.ASYNC_COPY,)),
    Family("LDGDEPBAR", Pipe.CP_ASYNC, Act.COMMIT, (Kind.ASYNC_COPY_COMMIT,)),
    Family("ARRIVES", Pipe.CP_ASYNC, Act.ARRIVE, (Kind.ASYNC_COPY_ARRIVE,)),
    Family("DEPBAR", Pipe.CONTROL, Act.WAIT, _WAITS),
    Family("UTMALDG UBLKCP", Pipe.BULK, Act.LOAD, _BULK),
    Family("UTMASTG", Pipe.BULK, Act.STORE, _BULK),
    Family("UTMAREDG UBLKRED", Pipe.BULK, Act.REDUCTION, _BULK),
    Family("UTMAPF UBLKPF", Pipe.BULK, Act.PREFETCH, _BULK),
    Family("UTMACMDFLUSH", Pipe.BULK, Act.COMMIT, (Kind.BULK_COMMIT,)),
    Family("UTMACCTL", Pipe.BULK, Act.PREFETCH, (Kind.PREFETCH, Kind.PROXY_FENCE, Kind.OTHER)),
    Family("HMMA IMMA DMMA BMMA QMMA OMMA", Pipe.MMA, Act.MULTIPLY, (Kind.MMA,)),
    Family("HGMMA IGMMA QGMMA BGMMA", Pipe.WGMMA, Act.MULTIPLY, (Kind.WGMMA,)),
    Family("WARPGROUP", Pipe.CONTROL, Act.WAIT, (Kind.WGMMA_FENCE, Kind.WGMMA_WAIT, Kind.WGMMA_COMMIT)),
    Family("WARPGROUPSET", Pipe.CONTROL),
    Family("UTCHMMA UTCIMMA UTCQMMA UTCOMMA UTCMXQMMA", Pipe.TCGEN05, Act.MULTIPLY, (Kind.TENSOR_MMA,)),
    Family("UTCBAR", Pipe.TCGEN05, Act.COMMIT, (Kind.TENSOR_COMMIT,)),
    Family("LDTM LDT", Pipe.TCGEN05, Act.LOAD, (Kind.TENSOR_LOAD,)),
    Family("STTM STT", Pipe.TCGEN05, Act.STORE, (Kind.TENSOR_STORE,)),
    Family("UTCCP UTCSHIFT UTCATOMSWS", Pipe.TCGEN05, Act.NONE, _TENSOR),
    Family("BAR", Pipe.BARRIER, Act.WAIT, (Kind.BARRIER_SYNC, Kind.BARRIER_ARRIVE)),
    Family("UCGABAR_ARV", Pipe.BARRIER, Act.ARRIVE, (Kind.CLUSTER_ARRIVE,)),
    Family("UCGABAR_WAIT", Pipe.BARRIER, Act.WAIT, (Kind.CLUSTER_WAIT,)),
    Family("SYNCS", Pipe.MBARRIER, Act.ARRIVE, (*_MBARRIER, Kind.ASYNC_COPY_ARRIVE)),
    Family("MEMBAR", Pipe.FENCE, Act.WAIT, (Kind.FENCE,)),
    Family("FENCE", Pipe.FENCE, Act.WAIT, (Kind.PROXY_FENCE, Kind.FENCE, Kind.TENSOR_FENCE, Kind.TENSOR_WAIT)),
    Family("ERRBAR CGAERRBAR UCGABAR_SET", Pipe.CONTROL),
    Family("R2UR UR2UP UP2UR", Pipe.UNIFORM),
    Family("BRA BRX BRXU JMP JMX JMXU UBRA CALL UCALL JCAL RET EXIT", Pipe.BRANCH),
    Family("BSSY BSYNC BREAK BMOV WARPSYNC YIELD KILL RPCMOV BPT RTT", Pipe.BRANCH),
    Family("S2R S2UR CS2UR B2R", Pipe.SPECIAL),
    # moves zeros or a clock, at the rate of a plain move
    Family("CS2R", Pipe.INTEGER),
    Family("NOP PMTRIG PREEXIT ENDCOLLECTIVE", Pipe.CONTROL),
    Family("NANOSLEEP", Pipe.CONTROL, Act.WAIT, (Kind.SLEEP,)),
    Family("USETMAXREG", Pipe.CONTROL, Act.NONE, (Kind.SET_REGISTERS,)),
    Family("ACQBULK", Pipe.CONTROL, Act.WAIT, (Kind.GRID_DEPENDENCY,)),
)

_BY_OPCODE = {opcode: family for family in FAMILIES for opcode in family.opcodes.split()}
# for opcodes without a row
_UNKNOWN = Family("", Pipe.INTEGER)
_UNKNOWN_UNIFORM = Family("", Pipe.UNIFORM)
# opcodes of the uniform datapath, counterparts of plain ones
_UNIFORM = (
    "UIADD3 UIADD3X UIMAD ULEA ULOP ULOP3 UMOV UPRMT USEL USHF USHL USHR UISETP UPLOP3 UPSETP UBMSK UBREV UFLO UPOPC "
    "USGXT UFADD UFMUL UFFMA UFSETP UFSEL UFMNMX UVIADD UVIMNMX UIABS UF2F UF2FP UF2I UI2F UI2FP UFRND USETSHMSZ "
    "UVIRTCOUNT UGETNEXTWORKID"
)
_KNOWN = _BY_OPCODE.keys() | set(_UNIFORM.split())


def family(name: str) -> Family:
    """The row of an instruction: that of its opcode and first modifier, else of its opcode, else a default."""
    opcode, *modifiers = name.split(".")
    found = _BY_OPCODE.get(f"{opcode}.{modifiers[0]}") if modifiers else None
    found = found or _BY_OPCODE.get(opcode)
    if found is not None:
        return found
    return _UNKNOWN_UNIFORM if name.startswith("U") else _UNKNOWN


def is_known(mnemonic: str) -> bool:
    """Whether an opcode is in the tables."""
    return mnemonic in _KNOWN
