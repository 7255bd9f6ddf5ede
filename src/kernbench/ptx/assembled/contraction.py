"""Contraction of multiplications and additions to fma, by the rules of ptxas.

The rules were found by assembling small kernels with ptxas 13.0. A product is contracted if neither it nor a sum names
a rounding mode, and if every use of it is such a sum: of the same type and handling of subnormals, in the same block,
with only moves and changes of sign in between. Blocks end at branches and at guarded memory accesses. A product by a
constant may be used in any block. A contracted product itself is not computed. A product that is also stored,
multiplied, or added in another block is not contracted. In a sum of two products only one is contracted; the other is
the addend, which is a use that is no sum. Approximate quotients end with a product by the reciprocal, which counts as
any other product. Not modelled is the code motion between blocks that ptxas does before; compilers that emit PTX have
mostly done it already.

The factors are copied to fresh registers at the product, as they may be overwritten before the sum.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kernbench.ptx.assembled.constants import constant, constants_of
from kernbench.ptx.assembled.lines import PRODUCTS, SUMS, Flow, Line, changed, flow_of, kind_of, part_of
from kernbench.ptx.assembled.quotients import reciprocal_and_dividend
from kernbench.ptx.assembled.temporary import Temporary, copy, flipped
from kernbench.ptx.text.module import Function, Instruction, Name, Operand


@dataclass(frozen=True)
class _Use:
    """A sum that uses a product: as its operand "a" or "b", negated or not."""

    line: Line
    operand: str
    negative: bool


@dataclass
class _Product:
    line: Line
    uses: list[_Use] = field(default_factory=list)
    # whether only sums use it
    fits: bool = True


def contracted(function: Function) -> Function:
    """The function with its products contracted; the same object if there are none."""
    flow = flow_of(function)
    chosen = _chosen(_products(flow))
    if not chosen:
        return function
    temporary = Temporary(function)
    changes: dict[int, tuple[Instruction, ...]] = {}
    for product in chosen:
        factors, made = _factors(product.line, temporary)
        changes[product.line.number] = tuple(made)
        for use in product.uses:
            changes[use.line.number] = tuple(_fused(use, factors, temporary))
    return changed(function, changes, temporary.registers())


def _products(flow: Flow) -> list[_Product]:
    """All products whose only uses are sums, with these uses."""
    live = _live_behind(flow)
    everywhere = _by_constants(flow)
    found = list(everywhere.values())
    for number, lines in _blocks(flow):
        # register -> the product that it holds, and whether negated
        holding = {register: (product, False) for register, product in everywhere.items()}
        for line in lines:
            _read(line, holding)
            _write(line, holding)
            if _is_product(line):
                register = line.written[0]
                product = everywhere.get(register) or _Product(line)
                found += [] if register in everywhere else [product]
                holding[register] = (product, False)
        for register, (product, _) in holding.items():
            if register not in everywhere and register in live[number]:
                product.fits = False
    return [product for product in found if product.fits and product.uses]


def _by_constants(flow: Flow) -> dict[str, _Product]:
    """Products by a constant that are the only definition of their register; these may be used in any block."""
    written = Counter(register for line in flow.lines for register in line.written)
    known = constants_of(flow)
    found = {}
    for line in flow.lines:
        once = _is_product(line) and written[line.written[0]] == 1
        if once and part_of(line) == "product" and any(constant(line, n, known) is not None for n in (1, 2)):
            found[line.written[0]] = _Product(line)
    return found


def _is_product(line: Line) -> bool:
    return line.instruction.guard is None and part_of(line) in PRODUCTS and "." not in line.written[0]


def _read(line: Line, holding: dict[str, tuple[_Product, bool]]) -> None:
    """Record how an instruction uses the products that registers hold."""
    if _is_copy(line, holding):
        return
    part, counted = part_of(line), set[str]()
    if part in SUMS:
        for operand in ("a", "b"):
            register = line.register(line.resolved.operand(operand) or 0)
            held = holding.get(register) if register is not None else None
            if held is None or held[0].line.resolved.mods["type"] != line.resolved.mods["type"]:
                continue
            counted.add(str(register))
            product, negative = held
            if any(use.line is line for use in product.uses) or kind_of(product.line) != kind_of(line):
                product.fits = False
            product.uses.append(_Use(line, operand, negative != (part == "difference" and operand == "b")))
    for register in line.read:
        if register in holding and register not in counted:
            holding[register][0].fits = False


def _is_copy(line: Line, holding: dict[str, tuple[_Product, bool]]) -> bool:
    """Whether an instruction only moves or negates a product."""
    if line.instruction.guard is not None or len(line.written) != 1 or len(line.instruction.operands) != 2:
        return False
    register = line.register(1)
    if register is None or register not in holding or "." in line.written[0]:
        return False
    effects = line.resolved.effects
    if effects.law == "copy" or effects.fuses != "negation":
        return effects.law == "copy"
    (kind, flushes), (made, flushed) = kind_of(line), kind_of(holding[register][0].line)
    return kind == made and (flushed or not flushes)


def _write(line: Line, holding: dict[str, tuple[_Product, bool]]) -> None:
    """Written registers hold no product any more, unless one is copied there."""
    copied = holding[str(line.register(1))] if _is_copy(line, holding) else None
    for register in line.written:
        held = holding.get(register)
        if held is not None and line.instruction.guard is not None:
            # some lanes keep the product
            held[0].fits = False
        holding.pop(register, None)
    if copied is not None:
        product, negative = copied
        holding[line.written[0]] = (product, negative != (line.resolved.effects.fuses == "negation"))


def _chosen(products: list[_Product]) -> list[_Product]:
    """The products that are contracted.

    Products with one use come first, then those with several. If a sum could take either of two products it takes the
    first; for the other one that sum is then a use that prevents contraction.
    """
    by_sum: dict[int, dict[str, _Product]] = {}
    for product in products:
        for use in product.uses:
            by_sum.setdefault(use.line.number, {})[use.operand] = product
    for alone in (True, False):
        for number in sorted(by_sum):
            pair = by_sum[number]
            fitting = [pair[name] for name in sorted(pair) if pair[name].fits]
            first = next((product for product in fitting if (len(product.uses) == 1) or not alone), None)
            if first is not None:
                for other in fitting:
                    other.fits = other is first
    return [product for product in products if product.fits]


def _blocks(flow: Flow) -> Iterator[tuple[int, list[Line]]]:
    held: dict[int, list[Line]] = {}
    for line in flow.lines:
        held.setdefault(line.block, []).append(line)
    return iter(held.items())


def _live_behind(flow: Flow) -> list[set[str]]:
    """For each block, the registers that are live at its end, among those that may hold a product."""
    asked = {line.written[0] for line in flow.lines if len(line.written) == 1 and _may_hold(line)}
    reads: list[set[str]] = [set() for _ in flow.behind]
    writes: list[set[str]] = [set() for _ in flow.behind]
    for line in flow.lines:
        reads[line.block].update(asked.intersection(line.read) - writes[line.block])
        if line.instruction.guard is None:
            writes[line.block].update(asked.intersection(line.written))
    live: list[set[str]] = [set() for _ in flow.behind]
    before = [set(read) for read in reads]
    changing = True
    while changing:
        changing = False
        for number in reversed(range(len(live))):
            behind = set[str]().union(*(before[one] for one in flow.behind[number]))
            if behind != live[number]:
                live[number], changing = behind, True
                before[number] = reads[number] | (behind - writes[number])
    return live


def _may_hold(line: Line) -> bool:
    effects = line.resolved.effects
    return effects.law == "copy" or bool(effects.fuses)


def _factors(line: Line, temporary: Temporary) -> tuple[tuple[Name, Name], list[Instruction]]:
    """Registers for the factors of a product, and the instructions that fill them at the product."""
    a, b = line.operand("a"), line.operand("b")
    if part_of(line) == "quotient":
        return reciprocal_and_dividend(line, a, b, temporary)
    kind = line.resolved.mods["type"]
    first, second = temporary.of_type(kind), temporary.of_type(kind)
    return (first, second), [copy(line.instruction, kind, first, a), copy(line.instruction, kind, second, b)]


def _fused(use: _Use, factors: tuple[Name, Name], temporary: Temporary) -> Iterator[Instruction]:
    """The fma that replaces a sum, after the changes of sign that it needs."""
    line, mods = use.line, use.line.resolved.mods
    kind = mods["type"]
    first: Operand = factors[0]
    addend = line.operand("b" if use.operand == "a" else "a")
    if use.negative:
        turned = temporary.of_type(kind)
        yield flipped(line.instruction, kind, turned, first)
        first = turned
    if line.resolved.effects.fuses == "difference" and use.operand == "a":
        turned = temporary.of_type(kind)
        yield copy(line.instruction, kind, turned, addend)
        yield flipped(line.instruction, kind, turned, turned)
        addend = turned
    modifiers = ("rn", *(name for name in ("ftz", "sat") if name in mods), kind)
    operands = (line.operand("d"), first, factors[1], addend)
    yield replace(line.instruction, opcode="fma", modifiers=modifiers, operands=operands)
