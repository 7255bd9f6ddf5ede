"""Loops that may wait for other threads, and their state: a loop whose state repeats unchanged is waiting."""

from collections.abc import Iterable, Mapping

from kernbench.ptx.emulator.analysis.ends import Ends
from kernbench.ptx.emulator.analysis.flow.dataflow import bits, live_at_blocks, numbers_in
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.lanes.slots import RegisterSlot, SlotTable
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import LoopRead, WaitLoop
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.text.module import Name
from kernbench.ptx.text.types import TYPES

# a loop with more carried registers than this computes something
_MOST_CARRIED = 24
_STRONG = frozenset(("volatile", "relaxed", "acquire"))
# writes to memory without a result
_STORES = frozenset(("store", "reduction"))
# spaces that no other thread writes
_OWN = frozenset(("param", "local", "const"))
_CLOCKS = ("%clock", "%globaltimer")
# updates by which one of several threads gets what all want
_TAKING = frozenset(("cas", "exch"))


def find_wait_loops(
    table: SlotTable, body: Body, bodies: Mapping[str, Body], parking: frozenset[int]
) -> dict[int, WaitLoop]:
    """The properties of each loop of a function that the scheduler needs, by the block at its head.

    `bodies` are all functions by name. Waits at the sites `parking` park, so no loop iterates over them.
    """
    found: dict[int, WaitLoop] = {}
    if not body.order.loops:
        return found
    live, registers = live_at_blocks(body), _registers(body)
    clocks = frozenset(d.site.number for one in bodies.values() for d in one if _looks_at_a_clock(d))
    for loop in body.order.loops:
        own = [d for block in sorted(loop.blocks) for d in body.decodings[block]]
        inside = [*own, *_called(own, bodies)]
        first = body.code.entry
        written = bits(register for d in own for register in d.writes)
        carried = [registers[number] for number in numbers_in(live[loop.head] & written)]
        strong = any(_is_strong(d, bodies, parking) for d in inside)
        polls = [d for d in inside if _is_strong(d, bodies, parking) and not d.effects.polls]
        looks = [d for d in inside if d.site.number in clocks]
        ends = Ends(body, loop.blocks, live, inside[len(own) :]) if polls or looks else None
        decided_by = ends.decided_by(polls) if ends is not None else frozenset()
        counting = [r for r in carried if decided_by and ends is not None and ends.only_counts(r.number)]
        found[first + loop.head] = WaitLoop(
            first + loop.head,
            frozenset(first + block for block in loop.blocks),
            tuple(table.number(RegisterSlot(r.bank, r.row)) for r in carried),
            _reads(inside, bodies, parking),
            _may_wait(inside, strong, carried),
            strong or _reads_memory(inside),
            _closed(inside),
            any(d.effects.access == "atomic" and d.mod("op") in _TAKING for d in inside),
            bool(looks),
            decided_by,
            frozenset(table.number(RegisterSlot(r.bank, r.row)) for r in counting),
            ends.decided_by(looks) if ends is not None else frozenset(),
            bool(looks) and ends is not None and ends.only_by(looks),
            not _may_wait(inside, bool(polls), carried),
        )
    return found


def _reads(inside: list[Decoding], bodies: Mapping[str, Body], parking: frozenset[int]) -> tuple[LoopRead, ...]:
    """The memory reads of a loop, mbarriers and strong loads first."""
    found = [
        (d, LoopRead(d.address_slot, d.address_offset, _read_space(d), _width(d), d.site))
        for d in inside
        if d.address_slot is not None and d.effects.access != "store" and _read_space(d) not in _OWN
    ]
    found.sort(key=lambda item: not _is_strong(item[0], bodies, parking))
    return tuple(read for _, read in found)


def _called(inside: list[Decoding], bodies: Mapping[str, Body]) -> list[Decoding]:
    """The instructions of all functions that some instructions call by name."""
    names: dict[str, None] = {}
    pending = inside
    while pending:
        called = {name for d in pending for name in _callees(d, bodies)}
        fresh = [name for name in sorted(called) if name not in names]
        names.update(dict.fromkeys(fresh))
        pending = [d for name in fresh for decodings in bodies[name].decodings for d in decodings]
    return [d for name in names for decodings in bodies[name].decodings for d in decodings]


def _callees(d: Decoding, bodies: Mapping[str, Body]) -> list[str]:
    """The function that an instruction calls by name, if its body is known."""
    if d.effects.flow != "call":
        return []
    return [operand.text for operand in d.operands if isinstance(operand, Name) and operand.text in bodies]


def _read_space(d: Decoding) -> str:
    return d.address_space or d.mod("space").partition("::")[0]


def _width(d: Decoding) -> int:
    kind = TYPES.get(d.mod("type"))
    return 0 if kind is None else kind.nbytes


def _may_wait(inside: list[Decoding], strong: bool, carried: list[Register]) -> bool:
    stores = any(d.effects.access in _STORES for d in inside)
    seems = strong or (_reads_memory(inside) and not stores)
    return seems and len(carried) <= _MOST_CARRIED and (strong or not carried)


def _reads_memory(inside: Iterable[Decoding]) -> bool:
    """Whether it reads memory that another thread may write."""
    return any(d.effects.access == "load" and _read_space(d) not in _OWN for d in inside)


def _is_strong(d: Decoding, bodies: Mapping[str, Body], parking: frozenset[int]) -> bool:
    """Whether it reads what others write; an unknown function may."""
    return (
        d.effects.access == "atomic"
        or (d.effects.flow == "call" and not _callees(d, bodies))
        or (d.effects.polls and d.site.number not in parking)
        or (d.effects.access == "load" and d.mod("sem") in _STRONG)
    )


def _closed(inside: list[Decoding]) -> str:
    """The threads whose joint state determines a loop's next state: a "lane", "warp", "block", or "".

    With "lane" and without memory reads, a repeated state proves that the loop never ends.
    """
    level = "lane"
    for d in inside:
        state = d.effects.follows_from
        if state == "lane" or d.effects.polls:
            continue
        if state == "block" and d.mod("mode") != "arrive" and d.position("count") is None:
            level = "block"
        elif state != "warp":
            return ""
        elif level == "lane":
            level = "warp"
    return level


def _looks_at_a_clock(d: Decoding) -> bool:
    return any(isinstance(operand, Name) and operand.text.startswith(_CLOCKS) for operand in d.operands)


def _registers(body: Body) -> dict[int, Register]:
    """The registers of a function by their numbers."""
    return {r.number: r for decodings in body.decodings for d in decodings for r in (*d.reads, *d.writes)}
