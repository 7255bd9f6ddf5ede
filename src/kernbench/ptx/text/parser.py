"""A recursive-descent parser: PTX text of any compiler to a `Module`, in one pass.

`Cursor` walks the tokens; `Expressions` parses operands and constant expressions, `Declarations` declarations, `_Body`
the statements of a function, `_Top` the module's items. Each is a subclass of the one before. Every error is a
`PtxSyntaxError` at the offending token.
"""

from dataclasses import replace

from kernbench.ptx.text.declarations import Declarations
from kernbench.ptx.text.keeping import Kept, no_collections
from kernbench.ptx.text.lexer import Tokens
from kernbench.ptx.text.module import (
    Block,
    Directive,
    Function,
    Guard,
    Instruction,
    Item,
    Label,
    Loc,
    Module,
    Statement,
    Variable,
)

_DEEPEST_BLOCK = 200
_LINKAGES = frozenset((".extern", ".visible", ".weak", ".common"))
_SPACES = frozenset((".global", ".shared", ".local", ".const", ".param", ".tex", ".reg"))


# cached modules by text; the bound counts characters
_KEPT: Kept[str, Module] = Kept(8_000_000)


def parse(text: str | bytes) -> Module:
    """Parse a PTX module; raises `PtxSyntaxError` with line, column and the line's text.

    Every call returns a new module; for the same text they share their items.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    text = text.removeprefix("\ufeff").rstrip("\x00")
    known = _KEPT.get(text)
    if known is None:
        with no_collections():
            known = _Top(Tokens(text)).module()
        _KEPT.put(text, known, len(text))
    return replace(known)


def is_as_read(module: Module) -> bool:
    """Whether a module equals what `parse` made of its source, so that what its text gives holds for it."""
    known = _KEPT.get(module.source)
    header = module.version, module.target, module.address_size
    return (
        known is not None
        and known.items is module.items
        and (known.version, known.target, known.address_size) == header
    )


def parse_statements(text: str) -> tuple[Statement, ...]:
    """Parse statements as in a function's body; raises `PtxSyntaxError`."""
    return tuple(_Body(Tokens(text)).statements())


class _Body(Declarations):
    """Statements of a function body."""

    depth = 0
    _guards: dict[tuple[str, bool], Guard]

    def __init__(self, tokens: Tokens):
        super().__init__(tokens)
        self._opcodes: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._guards = {}

    def block(self) -> Block:
        """`{ ... }`."""
        line = self.tokens.line(self.index)
        opening = self.index
        self.expect("{", "to begin a block")
        self.depth += 1
        if self.depth > _DEEPEST_BLOCK:
            raise self.tokens.error(opening, f"blocks are nested deeper than {_DEEPEST_BLOCK}")
        statements: list[Statement] = []
        texts = self.texts
        while texts[self.index] != "}":
            if not texts[self.index]:
                raise self.tokens.error(opening, "this block has no end; close it with '}'")
            self._statement(statements)
        self.index += 1
        self.depth -= 1
        return Block(tuple(statements), line)

    def statements(self) -> list[Statement]:
        """Statements up to the end of the text."""
        found: list[Statement] = []
        while self.texts[self.index]:
            self._statement(found)
        return found

    def _statement(self, into: list[Statement]) -> None:
        text = self.texts[self.index]
        first = text[0]
        if first == ".":
            self._directive(text, into)
        elif first == "@":
            into.append(self._guarded())
        elif first == "{":
            into.append(self.block())
        elif self.texts[self.index + 1] == ":":
            into.append(self._label())
        else:
            into.append(self.instruction(None, self.index))

    def _guarded(self) -> Instruction:
        start = self.index
        self.index += 1
        negated = self.accept("!")
        key = (self.name("a predicate register after '@'"), negated)
        guard = self._guards.get(key)
        if guard is None:
            guard = self._guards[key] = Guard(*key)
        return self.instruction(guard, start)

    def instruction(self, guard: Guard | None, start: int) -> Instruction:
        """One instruction up to its semicolon."""
        texts = self.texts
        text = texts[self.index]
        parts = self._opcodes.get(text)
        if parts is None:
            parts = self._opcode(text)
        self.index += 1
        opcode, modifiers = parts
        while texts[self.index].startswith(".") and texts[self.index][1:2].isalnum():
            modifiers = (*modifiers, texts[self.index][1:])
            self.index += 1
        self.opcode = opcode
        operands = []
        if texts[self.index] != ";":
            operands.append(self.operand())
            while texts[self.index] == ",":
                self.index += 1
                operands.append(self.operand())
            if texts[self.index] != ";":
                raise self.unexpected("',' or ';' after an operand")
        self.index += 1
        line, column = self.tokens.line_and_column(start)
        return Instruction(opcode, modifiers, tuple(operands), guard, line, column)

    def _opcode(self, text: str) -> tuple[str, tuple[str, ...]]:
        if not (text[:1].isalpha() or text[:1] == "_"):
            raise self.unexpected("an instruction, a label, a directive or '}'")
        opcode, *modifiers = text.split(".")
        parts = self._opcodes[text] = opcode, tuple(modifiers)
        return parts

    def _label(self) -> Label:
        line = self.tokens.line(self.index)
        name = self.name("a label")
        self.index += 1
        directive = self.texts[self.index]
        if directive in (".branchtargets", ".calltargets"):
            self.index += 1
            targets = self.listed(lambda: self.name("a target's name"))
            self.expect(";", "after the targets")
            return Label(name, directive[1:], tuple(targets), None, line)
        if directive == ".callprototype":
            return Label(name, directive[1:], (), self._prototype(), line)
        return Label(name, "", (), None, line)

    def _prototype(self) -> Function:
        line = self.tokens.line(self.index)
        self.index += 1
        returns = self.parameters() if self.texts[self.index] == "(" else ()
        name = self.name("the prototype's name ('_' will do)")
        params = self.parameters() if self.texts[self.index] == "(" else ()
        performance, pragmas = self._performance()
        self.expect(";", "after the prototype")
        return Function("prototype", name, params, returns, None, "", performance, (), pragmas, line)

    def _performance(self) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[str, ...]]:
        """`.maxntid 128, 1, 1`, `.noreturn`, `.pragma "..."` between a function's signature and its body."""
        found: list[tuple[str, tuple[int, ...]]] = []
        pragmas: list[str] = []
        while self.texts[self.index].startswith("."):
            name = self.texts[self.index][1:]
            self.index += 1
            if name == "pragma":
                pragmas.append(", ".join(self.listed(self.string)))
                self.accept(";")
                continue
            numbers = self.listed(self.constant) if self.texts[self.index][:1].isdigit() else []
            found.append((name, tuple(numbers)))
        return tuple(found), tuple(pragmas)

    def _directive(self, text: str, into: list[Statement]) -> None:
        if text == ".reg":
            into.append(self.registers())
        elif text == ".loc":
            into.append(self._loc())
        elif text in _SPACES or text in _LINKAGES:
            into.extend(self.variables())
        elif text == ".pragma":
            into.append(self.carried())
        elif text in (".file", ".section"):
            raise self.tokens.error(self.index, f"{text} stands outside functions; move it there")
        else:
            raise self.unexpected("an instruction, a label, a directive or '}'")

    def _loc(self) -> Loc:
        """`.loc file line column [, function_name name [+ offset], inlined_at file line column]`."""
        here = self.tokens.line(self.index)
        self.index += 1
        file, line, column = self.whole(), self.whole(), self.whole()
        more = ""
        while self.texts[self.index] == ",":
            self.index += 1
            more += self._loc_attribute()
        return Loc(file, line, column, more, here)

    def _loc_attribute(self) -> str:
        word = self.texts[self.index]
        self.index += 1
        if word == "function_name":
            name = self.name("the function's name label")
            offset = f"+{self.whole()}" if self.accept("+") else ""
            return f", function_name {name}{offset}"
        if word == "inlined_at":
            return f", inlined_at {self.whole()} {self.whole()} {self.whole()}"
        self.index -= 1
        raise self.unexpected("'function_name' or 'inlined_at'")

    def carried(self) -> Directive:
        """Parse a directive that is kept as text."""
        line = self.tokens.line(self.index)
        name = self.texts[self.index][1:]
        self.index += 1
        if name == "pragma":
            text = ", ".join(self.listed(self.string)) + ";"
            self.expect(";", "after the pragma")
        elif name == "file":
            text = f"{self.whole()} {self.string()}"
            while self.accept(","):
                text += f", {self.whole()}"
        else:
            text = self._section()
        return Directive(name, text, line)

    def _section(self) -> str:
        """A section's name and body, line by line, without comments."""
        name = self.texts[self.index]
        if not name.startswith(".") and not name.startswith('"'):
            raise self.unexpected("the section's name")
        self.index += 1
        opening = self.index
        self.expect("{", "to begin the section's body")
        rows = []
        while (text := self.texts[self.index]) != "}":
            if not text:
                raise self.tokens.error(opening, "this section has no end; close it with '}'")
            rows.append(self._section_row())
        self.index += 1
        return "\n".join([name, "{", *rows, "}"])

    def _section_row(self) -> str:
        """`.b8 1,2,3`, `.b32 label+4-other` or `label:`."""
        text = self.texts[self.index]
        if text[:1] != ".":
            name = self.name("'.b8', '.b16', '.b32', '.b64', a label or '}'")
            self.expect(":", "after the label")
            return f"{name}:"
        self.index += 1
        return f"{text} {','.join(self.listed(self._section_value))}"

    def _section_value(self) -> str:
        value = self._section_atom()
        while (sign := self.texts[self.index]) in ("+", "-"):
            self.index += 1
            value += sign + self._section_atom()
        return value

    def _section_atom(self) -> str:
        """A number, a label, or a section's name."""
        text = self.texts[self.index]
        sign = ""
        if text == "-":
            self.index += 1
            sign, text = "-", self.texts[self.index]
        if text[:1].isdigit():
            return f"{sign}{self.whole()}"
        if text[:1] == ".":
            self.index += 1
            return sign + text
        return sign + self.name("a number or a label")


class _Top(_Body):
    """The module's header and items."""

    def module(self) -> Module:
        """The whole text."""
        version = self._version()
        target: tuple[str, ...] = ()
        address_size = 32
        items: list[Item] = []
        while text := self.texts[self.index]:
            if text in (".version", ".target", ".address_size") and items:
                raise self.tokens.error(self.index, f"{text} stands at the beginning, before functions and variables")
            if text == ".target":
                self.index += 1
                target += tuple(self.listed(lambda: self.name("a target")))
            elif text == ".address_size":
                self.index += 1
                address_size = self._address_size()
            else:
                self._item(text, items)
        if not target:
            raise self.tokens.error(self.index, "the module has no '.target'; add one such as '.target sm_90a'")
        return Module(version, target, address_size, tuple(items), self.tokens.source)

    def _version(self) -> tuple[int, int]:
        if self.texts[self.index] != ".version":
            raise self.unexpected("'.version major.minor' at the beginning")
        self.index += 1
        major, dot, minor = self.texts[self.index].partition(".")
        if not (major.isdigit() and dot and minor.isdigit() and len(major + minor) < 6):
            raise self.unexpected("a version such as 8.0")
        self.index += 1
        return int(major), int(minor)

    def _address_size(self) -> int:
        at = self.index
        size = self.whole()
        if size not in (32, 64):
            raise self.tokens.error(at, f"addresses have 32 or 64 bits, not {size}")
        return size

    def _item(self, text: str, into: list[Item]) -> None:
        if text in (".pragma", ".file", ".section"):
            into.append(self.carried())
        elif text == ".alias":
            into.append(self._alias())
        elif text in _LINKAGES or text in _SPACES or text in (".entry", ".func"):
            into.extend(self._linked())
        else:
            raise self.unexpected("a function, a variable or a directive")

    def _alias(self) -> Directive:
        line = self.tokens.line(self.index)
        self.index += 1
        names = self.listed(lambda: self.name("a function's name"))
        self.expect(";", "after the alias")
        return Directive("alias", ", ".join(names) + ";", line)

    def _linked(self) -> list[Function] | list[Variable]:
        start = self.index
        while self.texts[self.index] in _LINKAGES:
            self.index += 1
        if self.texts[self.index] in (".entry", ".func"):
            linkage = " .".join(text[1:] for text in self.texts[start : self.index])
            return [self._function(linkage, start)]
        self.index = start
        return self.variables()

    def _function(self, linkage: str, start: int) -> Function:
        line = self.tokens.line(start)
        kind = self.texts[self.index][1:]
        self.index += 1
        attributes = self.attributes() if self.texts[self.index] == ".attribute" else ()
        returns = self.parameters() if self.texts[self.index] == "(" else ()
        name = self.name("the function's name")
        params = self.parameters() if self.texts[self.index] == "(" else ()
        performance, pragmas = self._performance()
        body = None
        if not self.accept(";"):
            if self.texts[self.index] != "{":
                raise self.unexpected("'{' or ';' after the function's head")
            body = self.block()
        return Function(kind, name, params, returns, body, linkage, performance, attributes, pragmas, line)
