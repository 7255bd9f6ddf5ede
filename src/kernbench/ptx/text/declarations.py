"""Parsing of declarations: registers, variables, parameters and initialisers."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from kernbench.ptx.text.expressions import Expressions
from kernbench.ptx.text.module import Generic, Initial, Integer, Masked, Name, Offset, Registers, Variable
from kernbench.ptx.text.types import TYPES

_MOST_REGISTERS = 1 << 20
_MOST_BYTES = 1 << 40
_DEEPEST_INITIALISER = 16
_SPACES = frozenset(("global", "shared", "local", "const", "param", "reg", "tex"))
_LINKAGES = frozenset(("extern", "visible", "weak", "common"))
_OPAQUE = frozenset(("texref", "samplerref", "surfref"))
_PLAIN = frozenset(("f16", "f16x2", "f32", "f64", *(name for name, row in TYPES.items() if row.kind in "bus")))
_REGISTER_TYPES = _PLAIN | {"pred"}
_VARIABLE_TYPES = _REGISTER_TYPES | _OPAQUE
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


class Declarations(Expressions):
    """Declarations of every kind."""

    def registers(self) -> Registers:
        """`.reg .v2 .type name, name<count>;`."""
        line = self.tokens.line(self.index)
        self.index += 1
        vector = _VECTORS.get(self.texts[self.index][1:], 1)
        self.index += vector > 1
        type_name = self._type(registers=True)
        names = self.listed(self._register_range)
        self.expect(";", "after the registers")
        return Registers(type_name, tuple(names), vector, line)

    def _type(self, registers: bool = False) -> str:
        text = self.texts[self.index]
        name = text[1:] if text.startswith(".") else ""
        if name not in (_REGISTER_TYPES if registers else _VARIABLE_TYPES):
            if name in TYPES:
                raise self.tokens.error(
                    self.index, f".{name} is a type of instructions only; declare bits, such as .b32"
                )
            raise self.unexpected("a type such as .b32")
        self.index += 1
        return name

    def _register_range(self) -> tuple[str, int]:
        name = self.name("a register's name")
        if not self.accept("<"):
            return name, 0
        at = self.index
        count = self.whole()
        if not 0 < count <= _MOST_REGISTERS:
            raise self.tokens.error(at, f"a range holds 1 to {_MOST_REGISTERS} registers, not {count}")
        self.expect(">", "after the number of registers")
        return name, count

    def variables(self) -> list[Variable]:
        """One declaration with one or more names, up to its semicolon."""
        found = []
        head = self._head()
        while True:
            found.append(self._declared(head, initialised=True))
            if not self.accept(","):
                break
        self.expect(";", "after the declaration")
        return found

    def parameters(self) -> tuple[Variable, ...]:
        """`(.param .u64 a, .param .b8 b[16])`."""
        self.index += 1
        if self.accept(")"):
            return ()
        found = self.listed(lambda: self._declared(self._head(), initialised=False))
        self.expect(")", "after the parameters")
        return tuple(found)

    def attributes(self) -> tuple[str, ...]:
        """`.attribute(.managed, .unified(1, 2))`, each as written."""
        self.index += 1
        self.expect("(", "after '.attribute'")
        found = self.listed(self._attribute)
        self.expect(")", "after the attributes")
        return tuple(found)

    def _attribute(self) -> str:
        name = self.texts[self.index]
        if not name.startswith("."):
            raise self.unexpected("an attribute such as .managed")
        self.index += 1
        if not self.accept("("):
            return name
        numbers = self.listed(self.number)
        self.expect(")", "after the attribute's numbers")
        return f"{name}({', '.join(number.spelling for number in numbers)})"

    def _head(self) -> Variable:
        """Everything before the name, as a variable with an empty name."""
        line = self.tokens.line(self.index)
        parts: dict[str, Any] = {}
        while self.texts[self.index].startswith("."):
            self._head_word(self.texts[self.index][1:], parts)
        if "space" not in parts:
            raise self.unexpected("a state space such as .param")
        if "type" not in parts:
            raise self.unexpected("a type such as .b32")
        return Variable(name="", line=line, **parts)

    def _head_word(self, word: str, parts: dict[str, Any]) -> None:
        if word in _LONGER:
            key, read = _LONGER[word]
            parts[key] = read(self)
        elif (key := _word_kind(word)) and key not in parts:
            parts[key] = _VECTORS.get(word, word)
            self.index += 1
        elif "type" not in parts:
            parts["type"] = self._type()
        else:
            raise self.unexpected("the variable's name")

    def _alignment(self) -> int:
        self.index += 1
        at = self.index
        value = self.constant()
        if value <= 0 or value & (value - 1) or value > 1 << 20:
            raise self.tokens.error(at, f"an alignment is a power of two up to 2^20, not {value}")
        return value

    def _pointer(self) -> str:
        """`.ptr .global .align 16` on a kernel parameter."""
        words = [".ptr"]
        self.index += 1
        while (text := self.texts[self.index]) in (".global", ".shared", ".local", ".const", ".param", ".align"):
            if text == ".align":
                words.append(f".align {self._alignment()}")
            else:
                words.append(text)
                self.index += 1
        return " ".join(words)

    def _declared(self, head: Variable, initialised: bool) -> Variable:
        at = self.index
        name = self.name("the variable's name")
        dims = self._dims()
        initial = None
        if initialised and self.accept("="):
            initial = self._initial(0)
        if isinstance(initial, tuple) and dims and dims[0] is None:
            dims = (len(initial), *dims[1:])
        variable = replace(head, name=name, dims=dims, initial=initial)
        self.element_sizes[name] = variable.element_size
        if prod((size for size in dims if size is not None), start=variable.element_size) > _MOST_BYTES:
            raise self.tokens.error(at, f"{name!r} is larger than 2^40 bytes")
        return variable

    def _dims(self) -> tuple[int | None, ...]:
        dims: list[int | None] = []
        while self.accept("["):
            if self.accept("]"):
                dims.append(None)
                continue
            at = self.index
            size = self.constant()
            if not 0 <= size <= _MOST_BYTES:
                raise self.tokens.error(at, f"an array has 0 to 2^40 elements, not {size}")
            dims.append(size)
            self.expect("]", "after the array's size")
            if len(dims) > 8:
                raise self.tokens.error(at, "an array has at most 8 dimensions")
        return tuple(dims)

    def _initial(self, depth: int) -> Initial:
        text = self.texts[self.index]
        if text == "{":
            if depth >= _DEEPEST_INITIALISER:
                raise self.unexpected(f"at most {_DEEPEST_INITIALISER} nested braces")
            self.index += 1
            items = [] if self.texts[self.index] == "}" else self.listed(lambda: self._initial(depth + 1))
            self.expect("}", "to close the initialiser")
            return tuple(items)
        if text[:1].isdigit() and self.texts[self.index + 1] == "(":
            mask = Integer(self.whole(), text)
            self.index += 1
            address = self._initial_address()
            self.expect(")", "after the masked address")
            return Masked(mask, address)
        if text and (text[0].isalpha() or text[0] in "_$%") and text != "WARP_SZ":
            return self._initial_address()
        return self.number()

    def _initial_address(self) -> Name | Offset | Generic:
        if self.texts[self.index] == "generic" and self.texts[self.index + 1] == "(":
            self.index += 2
            base = Name(self.name("a variable's name"))
            self.expect(")", "after the variable")
            return Generic(base, self._initial_offset())
        base = Name(self.name("a variable's name or a number"))
        offset = self._initial_offset()
        return Offset(base, offset) if offset else base

    def _initial_offset(self) -> int:
        return self.signed() if self.texts[self.index] in ("+", "-") else 0


def _word_kind(word: str) -> str:
    """The part of a declaration that a single keyword gives: linkage, space or vector; otherwise empty."""
    if word in _LINKAGES:
        return "linkage"
    if word in _SPACES:
        return "space"
    return "vector" if word in _VECTORS else ""


# keywords that are followed by arguments: the part they give, and the method that reads it
_LONGER: dict[str, tuple[str, Callable[[Declarations], object]]] = {
    "align": ("alignment", Declarations._alignment),
    "attribute": ("attributes", Declarations.attributes),
    "ptr": ("pointer", Declarations._pointer),
}
