"""Loads of words by a run of lanes, eight lanes at a time where addresses are contiguous, as in most warps.

Memory is prefetched: each warp reads elsewhere, so the processor cannot predict it. A loop does what `memory.access`
does for such loads as long as no lane has a fault, and returns the number of lanes it did; if those are not all, the
caller leaves the whole load to `access`. Results have 32 bits, so that no address is in the row that they go to.
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256

from kernbench.common.native.entry import Entry
from kernbench.common.native.kinds import INT, UINT, Array, Kind, Scalar
from kernbench.common.native.machine import Code, machine_name
from kernbench.common.native.writer import PRELUDE
from kernbench.common.native_loops import KeptCode
from kernbench.ptx.emulator.fused.code import is_possible

_WORD, _LONG = Scalar("u", 32), Scalar("u", 64)
# addresses, memory, the states of its words (empty if not checked), the bank, lanes; the bank's row, the offset added
# to addresses, and the last offset at which a word may begin
_KINDS: tuple[Kind, ...] = (
    Array(_LONG, 1, True),
    Array(_WORD, 1, True),
    Array(_WORD, 1, True),
    Array(_WORD, 2, True),
    Array(Scalar("i", 64), 1, True),
    INT,
    UINT,
    UINT,
)
_TEXT = """
declare i64 @llvm.vector.reduce.or.v8i64(<8 x i64>)
declare i32 @llvm.vector.reduce.or.v8i32(<8 x i32>)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
define internal i64 @words(ptr %addresses, i64 %many, ptr %memory, i64 %words, ptr %states, i64 %checked, ptr %bank,
    i64 %rows, i64 %width, ptr %lanes, i64 %count, i64 %row, i64 %by, i64 %last) nounwind {
entry:
  %end.at = getelementptr i64, ptr %lanes, i64 %count
  %final.at = getelementptr i64, ptr %end.at, i64 -1
  %first = load i64, ptr %lanes
  %final = load i64, ptr %final.at
  %apart = sub i64 %final, %first
  %span = add i64 %apart, 1
  %is.run = icmp eq i64 %span, %count
  %before = mul i64 %row, %width
  %index = add i64 %before, %first
  %target = getelementptr i32, ptr %bank, i64 %index
  %looks = icmp ne i64 %checked, 0
  %also = select i1 %looks, ptr %states, ptr %memory
  %reach = sub i64 %last, 28
  %wide = icmp uge i64 %last, 28
  %every = insertelement <8 x i64> poison, i64 %by, i32 0
  %bys = shufflevector <8 x i64> %every, <8 x i64> poison, <8 x i32> zeroinitializer
  br i1 %is.run, label %group, label %done
group:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %at = getelementptr i64, ptr %addresses, i64 %i
  %given = load <8 x i64>, ptr %at, align 8
  %ahead = add i64 %i, 256
  %there = icmp ult i64 %ahead, %count
  %soon = select i1 %there, i64 %ahead, i64 %i
  %soon.at = getelementptr i64, ptr %addresses, i64 %soon
  %soon.given = load i64, ptr %soon.at
  %soon.start = add i64 %soon.given, %by
  %soon.from = getelementptr i8, ptr %memory, i64 %soon.start
  call void @llvm.prefetch.p0(ptr %soon.from, i32 0, i32 3, i32 1)
  %soon.state = getelementptr i8, ptr %also, i64 %soon.start
  call void @llvm.prefetch.p0(ptr %soon.state, i32 0, i32 3, i32 1)
  %starts = add <8 x i64> %given, %bys
  %start = extractelement <8 x i64> %starts, i32 0
  %one = insertelement <8 x i64> poison, i64 %start, i32 0
  %all = shufflevector <8 x i64> %one, <8 x i64> poison, <8 x i32> zeroinitializer
  %wanted = add <8 x i64> %all, <i64 0, i64 4, i64 8, i64 12, i64 16, i64 20, i64 24, i64 28>
  %differ = xor <8 x i64> %starts, %wanted
  %different = call i64 @llvm.vector.reduce.or.v8i64(<8 x i64> %differ)
  %odd = and i64 %start, 3
  %bad = or i64 %different, %odd
  %plain = icmp eq i64 %bad, 0
  %inside = icmp ule i64 %start, %reach
  %fits = and i1 %inside, %wide
  %together = and i1 %plain, %fits
  br i1 %together, label %look, label %alone
look:
  br i1 %looks, label %states.look, label %move
states.look:
  %states.at = getelementptr i8, ptr %states, i64 %start
  %found = load <8 x i32>, ptr %states.at, align 4
  %unlike = xor <8 x i32> %found, WRITTEN8
  %flaw = call i32 @llvm.vector.reduce.or.v8i32(<8 x i32> %unlike)
  %written = icmp eq i32 %flaw, 0
  br i1 %written, label %move, label %alone
move:
  %from = getelementptr i8, ptr %memory, i64 %start
  %values = load <8 x i32>, ptr %from, align 4
  %to = getelementptr i32, ptr %target, i64 %i
  store <8 x i32> %values, ptr %to, align 4
  br label %next
alone:
  %k = phi i64 [ %i, %group ], [ %i, %states.look ], [ %k.next, %single.move ]
  %k.end = add i64 %i, 8
  %more.alone = icmp ult i64 %k, %k.end
  br i1 %more.alone, label %single, label %next
single:
  %k.at = getelementptr i64, ptr %addresses, i64 %k
  %k.given = load i64, ptr %k.at
  %k.start = add i64 %k.given, %by
  %k.odd = and i64 %k.start, 3
  %k.even = icmp eq i64 %k.odd, 0
  %k.inside = icmp ule i64 %k.start, %last
  %k.fits = and i1 %k.even, %k.inside
  br i1 %k.fits, label %single.look, label %single.end
single.look:
  br i1 %looks, label %single.state, label %single.move
single.state:
  %k.state.at = getelementptr i8, ptr %states, i64 %k.start
  %k.state = load i32, ptr %k.state.at
  %k.written = icmp eq i32 %k.state, WRITTEN1
  br i1 %k.written, label %single.move, label %single.end
single.move:
  %k.from = getelementptr i8, ptr %memory, i64 %k.start
  %k.value = load i32, ptr %k.from
  %k.to = getelementptr i32, ptr %target, i64 %k
  store i32 %k.value, ptr %k.to
  %k.next = add i64 %k, 1
  br label %alone
single.end:
  ret i64 %k
next:
  %i.next = add i64 %i, 8
  %more = icmp ult i64 %i.next, %count
  br i1 %more, label %group, label %end
end:
  ret i64 %count
done:
  ret i64 0
}
"""


@cache
def load_words(written: int) -> Callable[..., object] | None:
    """The machine code, which returns how many lanes from the first on it has loaded; None if unavailable.

    It needs at least one lane, and a multiple of eight. `written` is the state of a byte that may be read.
    """
    if not is_possible():
        return None
    state = int.from_bytes(bytes([written] * 4), "little")
    text = _TEXT.replace("WRITTEN8", f"<{', '.join([f'i32 {state}'] * 8)}>").replace("WRITTEN1", str(state))
    name = f"words_{sha256(f'{text} {machine_name()}'.encode()).hexdigest()[:24]}"
    entry = Entry(name, "words", _KINDS, INT)
    made: Code | None = KeptCode(load_words.__wrapped__, "words").code(name, PRELUDE + text + entry.text, entry.names)
    return made
