"""Parsing of names, numbers, constant expressions and operands."""

from collections.abc import Callable
from typing import NoReturn, TypeVar

from kernbench.ptx.text.errors import PtxSyntaxError
from kernbench.ptx.text.lexer import Tokens
from kernbench.ptx.text.literals import BINARY, UNARY, float_operation, literal, negated, wrap
from kernbench.ptx.text.module import Address, Float, Group, Integer, Name, Not, Offset, Operand, Pair, Vector

_DEEPEST = 50
_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$%")
_CASTS = frozenset((".s64", ".u64"))
_T = TypeVar("_T")


class Cursor:
    """A position in the tokens, and the parsing of what begins there."""

    def __init__(self, tokens: Tokens):
        self.tokens = tokens
        self.texts = tokens.texts
        self.index = 0

    def unexpected(self, wanted: str) -> PtxSyntaxError:
        """The error for a token that differs from what was expected."""
        text = self.texts[self.index]
        found = repr(text if len(text) <= 40 else text[:40] + "...") if text else "the end of the text"
        return self.tokens.error(self.index, f"expected {wanted}, found {found}")

    def accept(self, text: str) -> bool:
        """Consume a token if it is the given one."""
        if self.texts[self.index] != text:
            return False
        self.index += 1
        return True

    def expect(self, text: str, why: str) -> None:
        """Consume the given token; raise an error if another one is there."""
        if self.texts[self.index] != text:
            raise self.unexpected(f"{text!r} {why}")
        self.index += 1

    def name(self, what: str) -> str:
        """Parse an identifier."""
        text = self.texts[self.index]
        if text[:1] not in _WORD or not text or "." in text:
            raise self.unexpected(what)
        self.index += 1
        return text

    def string(self) -> str:
        """Parse a quoted string; the result includes its quotes."""
        text = self.texts[self.index]
        if not text.startswith('"'):
            raise self.unexpected("a quoted string")
        self.index += 1
        return text

    def whole(self) -> int:
        """Parse an unsigned integer literal."""
        number = literal(self.texts[self.index])
        if not isinstance(number, Integer):
            raise self.unexpected("an integer")
        self.index += 1
        return number.value

    def listed(self, read: Callable[[], _T]) -> list[_T]:
        """Parse one or more items separated by commas."""
        found = [read()]
        while self.accept(","):
            found.append(read())
        return found


class Expressions(Cursor):
    """Parsing of constants and operands."""

    def __init__(self, tokens: Tokens):
        super().__init__(tokens)
        self._names: dict[str, Name] = {}
        self._depth = 0
        # opcode of the instruction whose operands are parsed, and element sizes of the variables declared so far
        self.opcode = ""
        self.element_sizes: dict[str, int] = {}

    def number(self) -> Integer | Float:
        """Parse a literal, or a constant expression, evaluated in 64 bits."""
        start = self.index
        value = self._binary(0)
        if self.texts[self.index] == "?":
            value = self._choice(value, start)
        if isinstance(value, Integer) and self.index - start > 1 + (self.texts[start] == "-"):
            return Integer(value.value, str(value.value))
        return value

    def constant(self) -> int:
        """Parse a constant expression; raise an error if it is no integer."""
        start = self.index
        value = self.number()
        if not isinstance(value, Integer):
            raise self.tokens.error(start, f"expected an integer, found {value.spelling}")
        return value.value

    def _choice(self, condition: Integer | Float, start: int) -> Integer | Float:
        self._deeper()
        self.index += 1
        first = self.number()
        self.expect(":", "between the choices of '?'")
        second = self.number()
        self._depth -= 1
        return first if self._whole(condition, start).value else second

    def _binary(self, least: int) -> Integer | Float:
        start = self.index
        left = self._unary()
        while (row := BINARY.get(self.texts[self.index])) is not None and row[0] > least:
            at = self.index
            self.index += 1
            right = self._binary(row[0])
            try:
                left = self._computed(row[1], left, right, start)
            except ZeroDivisionError:
                raise self.tokens.error(at, "division by zero in a constant expression") from None
        return left

    def _computed(
        self, operation: Callable[[int, int], int], left: Integer | Float, right: Integer | Float, at: int
    ) -> Integer | Float:
        if isinstance(left, Float) and isinstance(right, Float):
            value = float_operation(operation, left, right)
            if value is not None:
                return value
        whole = wrap(operation(self._whole(left, at).value, self._whole(right, at).value))
        return Integer(whole, str(whole))

    def _unary(self) -> Integer | Float:
        text = self.texts[self.index]
        at = self.index
        if text in UNARY:
            self._deeper()
            self.index += 1
            value = self._unary()
            self._depth -= 1
            if text == "-":
                return negated(value)
            return Integer(result := wrap(UNARY[text](self._whole(value, at).value)), str(result))
        if text == "(":
            return self._parenthesised()
        if text == "WARP_SZ":
            self.index += 1
            return Integer(32, text)
        number = literal(text) if text[:1].isdigit() or text[:1] == "." else None
        if number is None:
            self._refuse_number(text)
        self.index += 1
        return number

    def _refuse_number(self, text: str) -> NoReturn:
        if text[:1].isdigit():
            raise self.tokens.error(self.index, f"{text[:40]!r} is not a number, or does not fit 64 bits")
        raise self.unexpected("an operand")

    def _parenthesised(self) -> Integer | Float:
        self._deeper()
        self.index += 1
        if self.texts[self.index] in _CASTS:
            cast = self.texts[self.index]
            at = self.index
            self.index += 1
            self.expect(")", "after the cast")
            value = self._whole(self._unary(), at).value & ((1 << 64) - 1)
            value -= (1 << 64) if cast == ".s64" and value >> 63 else 0
            number: Integer | Float = Integer(value, str(value))
        else:
            number = self.number()
            self.expect(")", "after the expression")
        self._depth -= 1
        return number

    def _whole(self, value: Integer | Float, at: int) -> Integer:
        if isinstance(value, Integer):
            return value
        raise self.tokens.error(at, f"only integers can be computed with, and {value.spelling} is a float")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.tokens.error(self.index, f"this is nested deeper than {_DEEPEST}")

    def operand(self) -> Operand:
        """Parse any operand of an instruction."""
        text = self.texts[self.index]
        if text[:1] in _WORD and text and text != "WARP_SZ":
            return self._named(text)
        read = _OPERANDS.get(text)
        return read(self) if read is not None else self.number()

    def _named(self, text: str) -> Operand:
        self.index += 1
        name = self._names.get(text)
        if name is None:
            name = self._names[text] = Name(text)
        after = self.texts[self.index]
        if after in (",", ";", "]", "}", ")"):
            return name
        if after == "|":
            self.index += 1
            return Pair(name, self.operand())
        if after in ("+", "-"):
            return Offset(name, self.signed())
        if after == "[":
            return self._element(name)
        return name

    def _element(self, array: Name) -> Operand:
        """`array[3]`: for mov the address of the element, for all other opcodes the element in memory."""
        self.index += 1
        offset = wrap(self.constant() * self.element_sizes.get(array.text, 1))
        self.expect("]", "after the index")
        return Offset(array, offset) if self.opcode == "mov" else Address(array, offset)

    def signed(self) -> int:
        """Parse `+ constant` or `- constant` after a base."""
        negative = self.texts[self.index] == "-"
        self.index += 1
        value = self.constant()
        return wrap(-value) if negative else value

    def _address(self) -> Operand:
        self._deeper()
        self.index += 1
        first = self.operand()
        base, offset = (first.base, first.offset) if isinstance(first, Offset) else (first, 0)
        more: list[Operand] = []
        while self.accept(","):
            more.append(self.operand())
        self.expect("]", "to close the address")
        self._depth -= 1
        return Address(base, offset, tuple(more), self.accept(".unified"))

    def _vector(self) -> Operand:
        self._deeper()
        self.index += 1
        items = [] if self.texts[self.index] == "}" else self.listed(self.operand)
        self.expect("}", "to close the vector")
        self._depth -= 1
        return Vector(tuple(items))

    def _parenthesis(self) -> Operand:
        """For call its arguments; for all other opcodes a constant expression in parentheses."""
        if self.opcode != "call":
            return self.number()
        self._deeper()
        self.index += 1
        items = [] if self.texts[self.index] == ")" else self.listed(self.operand)
        self.expect(")", "to close the arguments")
        self._depth -= 1
        return Group(tuple(items))

    def _not(self) -> Operand:
        if self.texts[self.index + 1][:1] not in _WORD or not self.texts[self.index + 1]:
            return self.number()
        self.index += 1
        return Not(Name(self.name("a predicate register after '!'")))


_OPERANDS: dict[str, Callable[[Expressions], Operand]] = {
    "[": Expressions._address,
    "{": Expressions._vector,
    "(": Expressions._parenthesis,
    "!": Expressions._not,
}
