"""The LLVM text of tapes: each operation as a function over rows, and the loop that plays a tape.

An operation is compiled once for all programs: it gets the addresses of its rows at each call. A tape is a list of
numbers: for each step, the address of its operation and its operands. A chunk of lanes goes through all steps before
the next chunk does, so that their registers stay in the nearest cache.
"""

from collections.abc import Sequence

from kernbench.common.native.entry import Entry
from kernbench.common.native.kinds import EMPTY, Array, Kind, Scalar
from kernbench.common.native.writer import PRELUDE
from kernbench.ptx.emulator.fused.emitting import emit
from kernbench.ptx.emulator.fused.values import Lines, Value, kind
from kernbench.ptx.emulator.program.steps import Compute

# lanes of a chunk, and maximal operands of a step
LANES, MOST = 256, 16
# numbers of a step before its operands, and per operand
HEAD, OPERAND = 6, 3
# numbers of a window before its bases, and per base
FIRST, BASE = 1, 3
# flags of a step: ignores the mask, has a guard, the guard is negated
UNMASKED, GUARDED, NEGATED = 1, 2, 4
_NUMBERS, _TRUTHS = Array(Scalar("i", 64), 1, True), Array(Scalar("b", 1), 1, True)
_KINDS: tuple[Kind, ...] = (_NUMBERS, _NUMBERS, _TRUTHS)


def operation(function: Compute, sources: Sequence[int], targets: Sequence[int]) -> str:
    """A step's function over rows of these widths, as the LLVM function `operation`; may raise `NotFused`.

    For each row it gets an address and an index mask: zero if the first few entries of the row stand for all lanes.
    """
    lines = Lines()
    begins: list[str] = []
    given = [_source(lines, begins, number, bits) for number, bits in enumerate(sources)]
    for number, result in enumerate(emit(function, given, list(targets)), len(sources)):
        value = result.wide(max(result.bits, 8))
        begins += _begin(number)
        at = lines.put(f"getelementptr i{value.bits}, ptr %row{number}, i64 %lane")
        lines.do(f"store {kind(value.bits)} {value.name}, ptr {at}, align {value.bits // 8}")
    return lines.over_lanes("void @operation(ptr %given, i64 %count)", begins)


def _begin(number: int) -> list[str]:
    return [
        f"  %row{number}.at = getelementptr i64, ptr %given, i64 {2 * number}",
        f"  %row{number} = load ptr, ptr %row{number}.at",
    ]


def _source(lines: Lines, begins: list[str], number: int, bits: int) -> Value:
    """Some lanes of a source row."""
    begins += _begin(number)
    begins += [
        f"  %lanes{number}.at = getelementptr i64, ptr %given, i64 {2 * number + 1}",
        f"  %lanes{number} = load i64, ptr %lanes{number}.at",
    ]
    stored = max(bits, 8)
    lane = lines.put(f"and i64 %lane, %lanes{number}")
    at = lines.put(f"getelementptr i{stored}, ptr %row{number}, i64 {lane}")
    value = lines.value(stored, f"load {kind(stored)}, ptr {at}, align {stored // 8}")
    return value if bits > 1 else value.compare("ne", 0)


def _splat(name: str, truth: str) -> str:
    return f"""  %{name}.in = insertelement <32 x i1> poison, i1 {truth}, i32 0
  %{name} = shufflevector <32 x i1> %{name}.in, <32 x i1> poison, <32 x i32> zeroinitializer"""


def _blend(bits: int) -> str:
    """Copy entries of a row to another under a mask, eight lanes at a time."""
    typed = f"<8 x i{bits}>"
    return f"""define internal void @blend{bits}(ptr %to, ptr %from, ptr %where, i64 %count) nounwind {{
entry:
  br label %loop
loop:
  %lane = phi i64 [ 0, %entry ], [ %next, %loop ]
  %where.at = getelementptr i8, ptr %where, i64 %lane
  %byte = load <8 x i8>, ptr %where.at, align 8
  %truth = icmp ne <8 x i8> %byte, zeroinitializer
  %to.at = getelementptr i{bits}, ptr %to, i64 %lane
  %from.at = getelementptr i{bits}, ptr %from, i64 %lane
  %old = load {typed}, ptr %to.at, align {bits // 8}
  %new = load {typed}, ptr %from.at, align {bits // 8}
  %chosen = select <8 x i1> %truth, {typed} %new, {typed} %old
  store {typed} %chosen, ptr %to.at, align {bits // 8}
  %next = add i64 %lane, 8
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}}
"""


def _field(name: str, of: str, number: str | int, typed: str = "i64") -> str:
    """Load a number behind an address."""
    return f"""  %{name}.at = getelementptr i64, ptr {of}, i64 {number}
  %{name} = load {typed}, ptr %{name}.at"""


def _resolve(stem: str, at: str, shift: str) -> str:
    """The address of a chunk's first lane in an operand, and its index mask."""
    return f"""{_field(f"{stem}.kind", at, 0)}
{_field(f"{stem}.row", at, 1)}
  %{stem}.skip = mul i64 %{stem}.kind, {BASE}
  %{stem}.from = getelementptr i64, ptr %table, i64 %{stem}.skip
{_field(f"{stem}.base", f"%{stem}.from", 0)}
{_field(f"{stem}.gap", f"%{stem}.from", 1)}
{_field(f"{stem}.lanes", f"%{stem}.from", 2)}
  %{stem}.by = mul i64 %{stem}.gap, %{stem}.row
  %{stem}.begin = add i64 %{stem}.base, %{stem}.by
  %{stem}.over = shl i64 %lane, {shift}
  %{stem}.mine = and i64 %{stem}.over, %{stem}.lanes
  %{stem}.address = add i64 %{stem}.begin, %{stem}.mine
  %{stem} = inttoptr i64 %{stem}.address to ptr"""


_PLAY = f"""
declare i64 @llvm.umin.i64(i64, i64)
{"".join(_blend(bits) for bits in (8, 16, 32, 64))}
define internal void @play(ptr %words, i64 %many, ptr %bases, i64 %n1, ptr %mask, i64 %masked) nounwind {{
entry:
  %given = alloca [{2 * MOST} x i64]
  %kept = alloca [{MOST} x ptr]
  %where = alloca [{LANES} x i8], align 32
  %room = alloca [{MOST * LANES} x i64], align 64
  %count = load i64, ptr %bases
  %table = getelementptr i64, ptr %bases, i64 {FIRST}
  %end = getelementptr i64, ptr %words, i64 %many
  %has.mask = icmp ne i64 %masked, 0
  br label %chunk
chunk:
  %lane = phi i64 [ 0, %entry ], [ %lane.next, %chunk.end ]
  %left = sub i64 %count, %lane
  %size = call i64 @llvm.umin.i64(i64 %left, i64 {LANES})
  br label %step
step:
  %at = phi ptr [ %words, %chunk ], [ %at.next, %step.end ]
{_field("operation", "%at", 0, "ptr")}
{_field("flags", "%at", 1)}
{_field("sources", "%at", 2)}
{_field("targets", "%at", 3)}
  %all = add i64 %sources, %targets
  %first = getelementptr i64, ptr %at, i64 {HEAD}
  br label %operand.next
operand.next:
  %number = phi i64 [ 0, %step ], [ %number.next, %operand.next ]
  %operand.at = phi ptr [ %first, %step ], [ %at.next, %operand.next ]
{_field("shift", "%operand.at", 2)}
{_resolve("operand", "%operand.at", "%shift")}
  %twice = shl i64 %number, 1
  %given.at = getelementptr i64, ptr %given, i64 %twice
  store ptr %operand, ptr %given.at
  %given.lanes.at = getelementptr i64, ptr %given.at, i64 1
  store i64 %operand.lanes, ptr %given.lanes.at
  %number.next = add i64 %number, 1
  %at.next = getelementptr i64, ptr %operand.at, i64 {OPERAND}
  %more.operands = icmp ult i64 %number.next, %all
  br i1 %more.operands, label %operand.next, label %resolved
resolved:
  %unmasked.bit = and i64 %flags, {UNMASKED}
  %may.mask = icmp eq i64 %unmasked.bit, 0
  %under.mask = and i1 %may.mask, %has.mask
  %guarded.bit = and i64 %flags, {GUARDED}
  %is.guarded = icmp ne i64 %guarded.bit, 0
  %partly = or i1 %under.mask, %is.guarded
  br i1 %partly, label %part, label %whole
whole:
  call void %operation(ptr %given, i64 %size)
  br label %step.end
part:
  %negated.bit = and i64 %flags, {NEGATED}
  %is.negated = icmp ne i64 %negated.bit, 0
  %guard.at = getelementptr i64, ptr %at, i64 4
{_resolve("guard", "%guard.at", "0")}
  %mask.at = getelementptr i8, ptr %mask, i64 %lane
  %mask.row = select i1 %under.mask, ptr %mask.at, ptr %guard
  %no.mask = xor i1 %under.mask, true
  %no.guard = xor i1 %is.guarded, true
{_splat("negated", "%is.negated")}
{_splat("unmasked", "%no.mask")}
{_splat("unguarded", "%no.guard")}
  br label %look
look:
  %i = phi i64 [ 0, %part ], [ %i.next, %look ]
  %truth.at = getelementptr i8, ptr %guard, i64 %i
  %truth.bytes = load <32 x i8>, ptr %truth.at, align 1
  %truth = icmp ne <32 x i8> %truth.bytes, zeroinitializer
  %turned = xor <32 x i1> %truth, %negated
  %holds = or <32 x i1> %turned, %unguarded
  %active.at = getelementptr i8, ptr %mask.row, i64 %i
  %active.bytes = load <32 x i8>, ptr %active.at, align 1
  %active = icmp ne <32 x i8> %active.bytes, zeroinitializer
  %counts = or <32 x i1> %active, %unmasked
  %both = and <32 x i1> %holds, %counts
  %both.bytes = zext <32 x i1> %both to <32 x i8>
  %where.at = getelementptr i8, ptr %where, i64 %i
  store <32 x i8> %both.bytes, ptr %where.at, align 32
  %i.next = add i64 %i, 32
  %more.look = icmp ult i64 %i.next, %size
  br i1 %more.look, label %look, label %aside
aside:
  %t = phi i64 [ 0, %look ], [ %t.next, %aside ]
  %t.number = add i64 %sources, %t
  %t.twice = shl i64 %t.number, 1
  %t.given = getelementptr i64, ptr %given, i64 %t.twice
  %t.row = load ptr, ptr %t.given
  %t.kept = getelementptr ptr, ptr %kept, i64 %t
  store ptr %t.row, ptr %t.kept
  %t.skip = mul i64 %t, {LANES}
  %t.room = getelementptr i64, ptr %room, i64 %t.skip
  store ptr %t.room, ptr %t.given
  %t.next = add i64 %t, 1
  %more.aside = icmp ult i64 %t.next, %targets
  br i1 %more.aside, label %aside, label %compute
compute:
  call void %operation(ptr %given, i64 %size)
  br label %back
back:
  %b = phi i64 [ 0, %compute ], [ %b.next, %back.end ]
  %b.number = add i64 %sources, %b
  %b.words = mul i64 %b.number, {OPERAND}
  %b.shift.index = add i64 %b.words, 2
{_field("b.shift", "%first", "%b.shift.index")}
  %b.kept = getelementptr ptr, ptr %kept, i64 %b
  %b.row = load ptr, ptr %b.kept
  %b.skip = mul i64 %b, {LANES}
  %b.room = getelementptr i64, ptr %room, i64 %b.skip
  switch i64 %b.shift, label %back8 [ i64 1, label %back16 i64 2, label %back32 i64 3, label %back64 ]
{
    "".join(
        f'''back{bits}:
  call void @blend{bits}(ptr %b.row, ptr %b.room, ptr %where, i64 %size)
  br label %back.end
'''
        for bits in (8, 16, 32, 64)
    )
}back.end:
  %b.next = add i64 %b, 1
  %more.back = icmp ult i64 %b.next, %targets
  br i1 %more.back, label %back, label %step.end
step.end:
  %more.steps = icmp ult ptr %at.next, %end
  br i1 %more.steps, label %step, label %chunk.end
chunk.end:
  %lane.next = add i64 %lane, {LANES}
  %more.lanes = icmp ult i64 %lane.next, %count
  br i1 %more.lanes, label %chunk, label %over
over:
  ret void
}}
"""


def playing(name: str) -> tuple[str, list[str]]:
    """The code that plays a tape for a window, under a mask unless it is empty.

    Its text, and the names in its table.
    """
    entry = Entry(name, "play", _KINDS, EMPTY)
    return PRELUDE + _PLAY + entry.text, entry.names
