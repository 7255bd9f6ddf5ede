"""The machine instructions for each PTX instruction of a recording, with the registers they read and write."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from kernbench.ptx.isa.forms.effects import Effects
from kernbench.ptx.isa.resolve import resolve
from kernbench.ptx.isa.special import special_register
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Instructions
from kernbench.ptx.sass.expansion.table import sequence
from kernbench.ptx.sass.pipes import family
from kernbench.ptx.sass.ptx_names import bytes_of, fragment_names, product_names
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Address, Function, Instruction, Name, Operand, Vector
from kernbench.ptx.text.parser import parse
from kernbench.ptx.text.walking import instructions_of, names_in

_STRONG = {"volatile", "relaxed", "acquire", "mmio"}
_SIZES = {1: ".U8", 2: ".U16", 4: "", 8: ".64"}
# bytes of the widest access
_WIDEST = 16


@dataclass(frozen=True, slots=True)
class Piece:
    """A machine instruction, with the row of its PTX instruction, and whether it gets the row's event."""

    name: str
    row: int
    reads: frozenset[str]
    writes: frozenset[str]
    predicated: bool = False
    takes_event: bool = False
    # the guard predicate, if any
    guard: str = field(default="")


def parsed_rows(text: str, instructions: Instructions) -> list[Instruction | None]:
    """The parsed instruction of each row; None if the text has none, or cannot be parsed."""
    by_line: dict[int, list[Instruction]] = defaultdict(list)
    try:
        items = parse(text).items
    except PtxError:
        return [None] * len(instructions)
    for function in (item for item in items if isinstance(item, Function)):
        for one in instructions_of(function.body):
            by_line[one.line].append(one)
    found: list[Instruction | None] = []
    for line, opcode in zip(instructions.line.tolist(), instructions.opcode, strict=True):
        here = by_line[line]
        mine = next((one for one in here if one.name == opcode), None)
        if mine is not None:
            here.remove(mine)
        found.append(mine)
    return found


def pieces_of_block(rows: Iterable[int], instructions: Instructions, parsed: list[Instruction | None]) -> list[Piece]:
    """The machine instructions of a block, with copies and redundant loads removed.

    A move that needs no instruction is propagated to the readers of its result; a load of the same address with no
    store in between is a move of the earlier result.
    """
    found: list[Piece] = []
    moved: dict[str, frozenset[str]] = {}
    loaded = _Loaded()
    for row in rows:
        one = parsed[row]
        reads, writes = operands(one) if one is not None else (frozenset[str](), frozenset[str]())
        known = loaded.again(one, writes) if one is not None else {}
        if known:
            moved.update({name: moved.get(source, frozenset((source,))) for name, source in known.items()})
            continue
        reads = frozenset(source for name in reads for source in moved.get(name, (name,)))
        made = _pieces(row, instructions.opcode[row], Kind(int(instructions.kind[row])), one, reads, writes)
        for name in writes:
            moved.pop(name, None)
        if not made and (one is None or one.guard is None):
            moved.update(dict.fromkeys(writes, reads))
        found += made
    return found


class _Loaded:
    """Available loads of a block: their results, while neither memory nor the registers involved have changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Instruction, list[str]]] = {}

    def again(self, one: Instruction, writes: frozenset[str]) -> dict[str, str]:
        """If the load was made before: for each register it writes the one that holds its value; else empty."""
        effects = effects_of(one)
        plain = effects.access == "load" and one.guard is None and not _STRONG & set(one.modifiers)
        if not plain and not effects.computes:
            # stores, barriers and fences
            self._known.clear()
        text = f"{one.name} {one.operands[1:]}" if plain else ""
        before, into = self._known.get(text), _names_of(one.operands[0]) if plain else []
        for key in [key for key, (load, results) in self._known.items() if writes & {*results, *_names_in(load, 1)}]:
            del self._known[key]
        if before is not None and len(before[1]) == len(into):
            return dict(zip(into, before[1], strict=True))
        if plain and not writes & {*_names_in(one, 1)}:
            self._known[text] = one, into
        return {}


def _names_of(operand: Operand) -> list[str]:
    return [name for part in (operand.items if isinstance(operand, Vector) else (operand,)) for name in names_in(part)]


def _names_in(one: Instruction, since: int) -> list[str]:
    """The names in an instruction's operands, from operand number `since` on."""
    return [name for operand in one.operands[since:] for name in names_in(operand)]


def _pieces(
    row: int, opcode: str, kind: Kind, parsed: Instruction | None, reads: frozenset[str], writes: frozenset[str]
) -> list[Piece]:
    """The machine instructions of a row, each of which depends on the one before it."""
    names = machine_names(opcode, parsed)
    guard = parsed.guard.register if parsed is not None and parsed.guard is not None else ""
    found: list[Piece] = []
    # the parts of one wide access are independent; the instructions of a sequence are not
    side_by_side = len(set(names)) == 1 and len(names) > 1
    before: frozenset[str] = frozenset()
    for number, name in enumerate(names):
        plain = name.removeprefix("@")
        last = number == len(names) - 1 or side_by_side
        temporary = frozenset((f"{row}:{number}",))
        takes = kind != Kind.NONE and kind in family(plain.partition(".")[0]).kinds
        into = writes | temporary if last else temporary
        predicated = bool(guard) or name != plain
        found.append(Piece(plain, row, reads | before, into, predicated, takes, guard))
        before = frozenset() if side_by_side else temporary
    return found


def machine_names(opcode: str, parsed: Instruction | None) -> list[str]:
    """The names of the machine instructions of an opcode; predicated ones have `@` before their name."""
    key = opcode
    if parsed is not None and effects_of(parsed).law == "copy":
        key = opcode + _kind_of_move(parsed)
    names: list[str] = []
    for name in sequence(key):
        if "{mma}" in name:
            names += product_names(opcode)
        elif "{fragment}" in name:
            names += fragment_names(opcode)
        elif "{size}" in name:
            size = bytes_of(opcode) or 4
            names += [name.replace("{size}", _SIZES.get(size, ".128"))] * max(1, size // _WIDEST)
        else:
            names.append(name)
    return names


def _kind_of_move(parsed: Instruction) -> str:
    """Whether a move needs an instruction: those of special registers and of register halves do."""
    source = parsed.operands[-1]
    if isinstance(source, Name) and source.text.startswith("%") and special_register(source.text) is not None:
        return ".special"
    narrow = parsed.modifiers[-1:] == ("b32",)
    return ".pack16" if narrow and isinstance(source, Vector) else ""


def operands(parsed: Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """The names that an instruction reads, and those that it writes."""
    reads, writes = set(), set()
    try:
        roles = [rule.role for rule in resolve(parsed).rules]
    except PtxError:
        roles = ["d" if number == 0 else "a" for number in range(len(parsed.operands))]
    for operand, role in zip(parsed.operands, roles, strict=False):
        names = set(names_in(operand))
        if role in ("d", "da") and not isinstance(operand, Address):
            writes |= names
        if role != "d" or isinstance(operand, Address):
            reads |= names
    if parsed.guard is not None:
        reads.add(parsed.guard.register)
    return frozenset(reads), frozenset(writes)


def label_of(parsed: Instruction) -> str:
    """The target of a direct branch; empty for other instructions."""
    target: Operand | None = parsed.operands[0] if effects_of(parsed).flow == "branch" and parsed.operands else None
    return target.text if isinstance(target, Name) else ""


def effects_of(parsed: Instruction) -> Effects:
    """An instruction's effects; conservative ones if it is not in the ISA table."""
    try:
        return resolve(parsed).form.effects
    except PtxError:
        return Effects()
