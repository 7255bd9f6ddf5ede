"""A demangler for C++ names of the Itanium ABI, which nvcc and clang use for kernels and device functions.

A type is represented by the text to the left and to the right of the name that it would declare, so that pointers to
functions and to arrays come out right. `UnknownNameError` is raised for what is not supported: expressions other than
plain values, conversion operators, and the rarer special names.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

_BUILTIN = {
    "v": "void", "w": "wchar_t", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "n": "__int128", "o": "unsigned __int128", "f": "float", "d": "double",
    "e": "long double", "g": "__float128", "z": "...",
}  # fmt: skip
_BUILTIN_D = {
    "Dn": "decltype(nullptr)", "Di": "char32_t", "Ds": "char16_t", "Du": "char8_t", "Da": "auto",
    "Dc": "decltype(auto)", "Dh": "half",
}  # fmt: skip
_STANDARD = {
    "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string", "Si": "std::istream",
    "So": "std::ostream", "Sd": "std::iostream",
}  # fmt: skip
# suffix of a literal of each integer type
_SUFFIX = {"int": "", "unsigned int": "u", "long": "l", "unsigned long": "ul", "long long": "ll"}
_SUFFIX["unsigned long long"] = "ull"
_OPERATORS = {
    "nw": " new", "na": " new[]", "dl": " delete", "da": " delete[]", "ps": "+", "ng": "-", "ad": "&", "de": "*",
    "co": "~", "pl": "+", "mi": "-", "ml": "*", "dv": "/", "rm": "%", "an": "&", "or": "|", "eo": "^", "aS": "=",
    "pL": "+=", "mI": "-=", "mL": "*=", "dV": "/=", "rM": "%=", "aN": "&=", "oR": "|=", "eO": "^=", "ls": "<<",
    "rs": ">>", "lS": "<<=", "rS": ">>=", "eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">=",
    "ss": "<=>", "nt": "!", "aa": "&&", "oo": "||", "pp": "++", "mm": "--", "cm": ",", "pm": "->*", "pt": "->",
    "cl": "()", "ix": "[]", "qu": "?",
}  # fmt: skip
_QUALIFIERS = {"K": " const", "V": " volatile", "r": " restrict"}
_SPECIAL = {"TV": "vtable for ", "TT": "VTT for ", "TI": "typeinfo for ", "TS": "typeinfo name for "}
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# names nested deeper than this are refused
_DEEPEST = 200


class UnknownNameError(Exception):
    """The name is not mangled, or contains something that is not supported."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type, or any other template argument: the text left and right of a declared name.

    `wraps`: a pointer to it needs parentheses. For a name, `last` is its last component, which constructors repeat, and
    `templated` whether it ends with template arguments.
    """

    left: str
    right: str = ""
    wraps: bool = False
    last: str = ""
    templated: bool = False

    def __str__(self) -> str:
        between = " " if self.wraps and self.right.startswith("(") else ""
        return f"{self.left}{between}{self.right}"

    def _space(self) -> str:
        """The space before a parenthesis: none inside another function's parentheses."""
        inside = self.left.count("(") > self.left.count(")")
        return "" if inside and self.right.startswith("(") else " "

    def member(self, holder: str) -> "Type":
        """A pointer to a member of the class `holder`."""
        if self.wraps:
            return Type(f"{self.left}{self._space()}({holder}::*", f"){self.right}")
        return Type(f"{self.left} {holder}::*", self.right)

    def pointed(self, mark: str) -> "Type":
        """A pointer or reference to it."""
        if self.wraps:
            return Type(f"{self.left}{self._space()}({mark}", f"){self.right}")
        if mark in ("&", "&&") and self.left.endswith("&"):
            return self if mark == "&&" else replace(self, left=self.left.rstrip("&") + "&")
        return Type(self.left + mark, self.right)

    def qualified(self, mark: str) -> "Type":
        """The type with const or volatile."""
        if self.wraps and self.right.startswith("("):
            return replace(self, right=self.right + mark)
        # an argument that is const already is not changed
        return self if self.left.endswith(mark) else replace(self, left=self.left + mark)


@dataclass(frozen=True, slots=True)
class Pack:
    """Several types under one name (a parameter pack), not expanded yet."""

    items: tuple[Type, ...]


Entity = Type | Pack


def _each(entity: Entity, change: Callable[[Type], Type]) -> Entity:
    return Pack(tuple(map(change, entity.items))) if isinstance(entity, Pack) else change(entity)


def _several(parts: list[Entity], make: Callable[[list[Type]], Type]) -> Entity:
    """Combine parts; if there are unexpanded packs among them, once for each of their items."""
    sizes = {len(part.items) for part in parts if isinstance(part, Pack)}
    if not sizes:
        return make([part for part in parts if isinstance(part, Type)])
    if len(sizes) > 1:
        raise UnknownNameError
    return Pack(
        tuple(make([part.items[i] if isinstance(part, Pack) else part for part in parts]) for i in range(sizes.pop()))
    )


@dataclass(eq=False)
class Name:
    """A mangled name, and the state of its parser."""

    text: str
    at: int = 0
    depth: int = 0
    found: list[Entity] = field(default_factory=list)
    arguments: list[Entity] = field(default_factory=list)
    # qualifiers of the member function whose name was parsed last
    suffix: str = ""
    in_lambda: int = 0

    def read(self) -> tuple[str, str]:
        """The name without and with its parameters and what it returns."""
        self._expect("_Z")
        name, whole = self._encoding(True)
        rest = self.text[self.at :]
        if rest and not rest.startswith((".", "$")):
            raise UnknownNameError
        return name, whole + (f" [clone {rest}]" if rest else "")

    def _peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def _take(self, text: str) -> bool:
        if self._peek(text):
            self.at += len(text)
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise UnknownNameError

    def _next(self, count: int = 1) -> str:
        taken = self.text[self.at : self.at + count]
        if len(taken) < count:
            raise UnknownNameError
        self.at += count
        return taken

    def _number(self) -> int:
        start = self.at
        while self.text[self.at : self.at + 1].isdecimal():
            self.at += 1
        if start == self.at:
            raise UnknownNameError
        return int(self.text[start : self.at])

    def _sequence(self) -> int:
        """A sequence number: `_` is 0, `0_` is 1, and so on, in base 36."""
        if self._take("_"):
            return 0
        value = 0
        while not self._peek("_"):
            digit = _DIGITS.find(self._next())
            if digit < 0:
                raise UnknownNameError
            value = value * 36 + digit
        self._expect("_")
        return value + 1

    def _counted(self) -> int:
        """As `_sequence`, in decimal: the number of an unnamed type or lambda."""
        if self._take("_"):
            return 1
        number = self._number()
        self._expect("_")
        return number + 2

    def _encoding(self, outermost: bool) -> tuple[str, str]:
        """A function or variable: its name, and that with parameters; the outermost template also shows its result."""
        special = self.text[self.at : self.at + 2]
        if special in _SPECIAL:
            self.at += 2
            shown = _SPECIAL[special] + str(self._one(self._type()))
            return shown, shown
        self.suffix = ""
        name = self._one(self._name(True))
        suffix = self.suffix
        if self.at == len(self.text) or self.text[self.at] in "E.$":
            return str(name), str(name)
        returned = None
        if name.templated and not name.last.startswith("~") and name.last != "constructor":
            returned = self._one(self._type())
        parameters = f"({self._parameters()}){suffix}"
        whole = f"{name}{parameters}"
        if returned is not None and outermost:
            between = "" if returned.right.startswith(")") else " "
            whole = f"{returned.left}{between}{whole}{returned.right}"
        return str(name), whole

    def _parameters(self) -> str:
        """The types of a function's parameters, up to its end."""
        found: list[Type] = []
        while self.at < len(self.text) and self.text[self.at] not in "E.$@":
            if self.text[self.at] in "RO" and self.text[self.at + 1 : self.at + 2] in ("E", ""):
                break
            found += self._expanded()
        shown = [str(one) for one in found]
        return "" if shown == ["void"] else ", ".join(shown)

    def _expanded(self) -> list[Type]:
        """One type, or those of a pack."""
        expands = self._take("Dp")
        entity = self._remember(self._type()) if expands else self._type()
        if isinstance(entity, Pack):
            return list(entity.items)
        return [replace(entity, right=entity.right + "...") if expands else entity]

    def _one(self, entity: Entity) -> Type:
        if isinstance(entity, Pack):
            raise UnknownNameError
        return entity

    def _remember(self, entity: Entity) -> Entity:
        self.found.append(entity)
        return entity

    def _name(self, outer: bool = False) -> Entity:
        """`outer`: this is the mangled entity's own name, to whose template arguments its parameters refer."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise UnknownNameError
        try:
            return self._any_name(outer)
        finally:
            self.depth -= 1

    def _any_name(self, outer: bool) -> Entity:
        if self._take("N"):
            return self._nested(outer)
        if self._take("Z"):
            return self._local(outer)
        if self._peek("S") and not self._peek("St"):
            name = self._substitution()
            if not self._peek("I"):
                raise UnknownNameError
            return self._with_arguments(name, outer)
        scope = "std::" if self._take("St") else ""
        name = self._unqualified("")
        name = replace(name, left=scope + name.left)
        if not self._peek("I"):
            return name
        return self._with_arguments(self._remember(name), outer)

    def _with_arguments(self, name: Entity, outer: bool) -> Entity:
        arguments = self._template_arguments(outer)

        def make(parts: list[Type]) -> Type:
            shown = ", ".join(map(str, parts[1:]))
            between = " " * parts[0].left.endswith("<")
            return Type(f"{parts[0]}{between}<{shown}>", last=parts[0].last, templated=True)

        return _several([name, *arguments], make)

    def _template_arguments(self, outer: bool) -> list[Entity]:
        self._expect("I")
        if outer:
            self.arguments = []
        shown: list[Entity] = []
        while not self._take("E"):
            parts = self._argument()
            if outer:
                self.arguments.append(parts if isinstance(parts, Pack) else parts[0])
            shown += parts.items if isinstance(parts, Pack) else parts
        return shown

    def _argument(self) -> list[Entity] | Pack:
        """One template argument, as a list; several if it is a pack."""
        if self._take("J"):
            items: list[Type] = []
            while not self._take("E"):
                inner = self._argument()
                items += inner.items if isinstance(inner, Pack) else [self._one(one) for one in inner]
            return Pack(tuple(items))
        if self._peek("Dp"):
            return Pack(tuple(self._expanded()))
        if self._peek("L"):
            return [self._literal()]
        if self._take("X"):
            value = self._literal() if self._peek("L") else self._template_parameter()
            self._expect("E")
            return [value]
        return [self._type()]

    def _literal(self) -> Type:
        self._expect("L")
        if self._take("_Z"):
            inner = Name(self.text, self.at, self.depth + 1, self.found)
            shown, _ = inner._encoding(False)
            self.at = inner.at
            self._expect("E")
            return Type(shown)
        kind = str(self._one(self._type()))
        end = self.text.find("E", self.at)
        if end < 0:
            raise UnknownNameError
        value, self.at = self.text[self.at : end].replace("n", "-"), end + 1
        if kind == "bool" and value in ("0", "1"):
            return Type("true" if value == "1" else "false")
        if kind in ("float", "double"):
            return Type(f"({kind})[{value}]")
        return Type(value + _SUFFIX[kind] if kind in _SUFFIX else f"({kind}){value}")

    def _nested(self, outer: bool) -> Entity:
        qualifiers = self._cv()
        if self._peek("R") or self._peek("O"):
            qualifiers += " &" if self._next() == "R" else " &&"
        so_far: Entity | None = None
        while not self._take("E"):
            so_far = self._component(so_far, outer)
        if so_far is None or not self.found:
            raise UnknownNameError
        self.found.pop()
        if outer:
            self.suffix = qualifiers
        return so_far

    def _cv(self) -> str:
        marks = []
        while self.text[self.at : self.at + 1] in ("r", "V", "K"):
            marks.append(_QUALIFIERS[self._next()])
        return "".join(reversed(marks))

    def _component(self, so_far: Entity | None, outer: bool) -> Entity:
        if self._peek("T"):
            return self._parameter()
        if self._peek("I"):
            if so_far is None:
                raise UnknownNameError
            return self._remember(self._with_arguments(so_far, outer))
        if self._take("St"):
            return self._remember(self._below(Type("std"), self._unqualified("")))
        if self._peek("S"):
            known = self._substitution()
            # the last substitution is removed again at the end
            if self._peek("E"):
                self.found.append(known)
            return known
        last = so_far.last if isinstance(so_far, Type) else ""
        name = self._unqualified(last)
        return self._remember(name if so_far is None else self._below(so_far, name))

    def _below(self, scope: Entity, name: Type) -> Entity:
        return _each(scope, lambda one: Type(f"{one}::{name}", last=name.last))

    def _unqualified(self, scope: str) -> Type:
        """A name without scope; `scope` is the class, if the name is of a constructor."""
        self._take("L")
        two = self.text[self.at : self.at + 2]
        if two[:1].isdecimal():
            name = self._source_name()
        elif two in ("Ut", "Ul"):
            name = self._unnamed()
        elif two in ("C1", "C2", "C3", "D0", "D1", "D2") and scope:
            self.at += 2
            name = Type(scope if two[0] == "C" else f"~{scope}", last="constructor" if two[0] == "C" else f"~{scope}")
        elif two in _OPERATORS:
            self.at += 2
            name = Type(f"operator{_OPERATORS[two]}", last="operator")
        elif two == "li":
            self.at += 2
            name = Type(f'operator"" {self._source_name()}', last="operator")
        else:
            raise UnknownNameError
        while self._take("B"):
            name = replace(name, left=f"{name.left}[abi:{self._source_name()}]")
        return name

    def _source_name(self) -> Type:
        name = self._next(self._number())
        if name.startswith("_GLOBAL__N"):
            name = "(anonymous namespace)"
        return Type(name, last=name)

    def _unnamed(self) -> Type:
        if self._take("Ut"):
            return Type(f"{{unnamed type#{self._counted()}}}")
        self._expect("Ul")
        self.in_lambda += 1
        shown = self._parameters()
        self.in_lambda -= 1
        self._expect("E")
        return Type(f"{{lambda({shown})#{self._counted()}}}")

    def _local(self, outer: bool) -> Entity:
        _, scope = self._encoding(False)
        self._expect("E")
        if self._take("s"):
            self._discriminator()
            return Type(f"{scope}::string literal")
        if self._peek("d"):
            raise UnknownNameError
        inside = self._name(outer)
        self._discriminator()
        return _each(inside, lambda one: replace(one, left=f"{scope}::{one.left}"))

    def _discriminator(self) -> None:
        if self._take("__"):
            self._number()
            self._expect("_")
        elif self._peek("_") and self.text[self.at + 1 : self.at + 2].isdecimal():
            self.at += 2

    def _substitution(self) -> Entity:
        two = self.text[self.at : self.at + 2]
        if two in _STANDARD:
            self.at += 2
            return Type(_STANDARD[two], last=_STANDARD[two].removeprefix("std::"))
        self._expect("S")
        number = self._sequence()
        if number >= len(self.found):
            raise UnknownNameError
        return self.found[number]

    def _parameter(self) -> Entity:
        """A template parameter T_ as a type, which later substitutions may refer to."""
        return self._remember(self._template_parameter())

    def _template_parameter(self) -> Entity:
        """A template parameter T_: the argument of the template."""
        self._expect("T")
        number = self._sequence()
        if self.in_lambda:
            return Type(f"auto:{number + 1}")
        if number >= len(self.arguments):
            raise UnknownNameError
        return self.arguments[number]

    def _type(self) -> Entity:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise UnknownNameError
        try:
            return self._any_type()
        finally:
            self.depth -= 1

    def _any_type(self) -> Entity:
        one, two = self.text[self.at : self.at + 1], self.text[self.at : self.at + 2]
        if one in _BUILTIN:
            return Type(_BUILTIN[self._next()])
        if two in _BUILTIN_D:
            return Type(_BUILTIN_D[self._next(2)])
        if self._take("DF16b"):
            return Type("std::bfloat16_t")
        if self._take("DF16_"):
            return Type("_Float16")
        if self._take("u"):
            return self._remember(self._source_name())
        return self._compound(one, two)

    def _compound(self, one: str, two: str) -> Entity:
        """A type that later substitutions may refer to."""
        if one in ("r", "V", "K"):
            marks = self._cv()
            return self._remember(_each(self._type(), lambda inner: inner.qualified(marks)))
        if one in ("P", "R", "O"):
            mark = {"P": "*", "R": "&", "O": "&&"}[self._next()]
            return self._remember(_each(self._type(), lambda inner: inner.pointed(mark)))
        if one == "F" or two == "Do":
            return self._remember(self._function())
        if one == "A":
            return self._remember(self._array())
        if one == "M":
            self.at += 1
            holder = self._one(self._type())
            return self._remember(_each(self._type(), lambda inner: inner.member(str(holder))))
        if one == "T":
            return self._maybe_template(self._parameter())
        if one == "S" and two != "St":
            name = self._substitution()
            return self._maybe_template(name)
        if two == "Dv":
            self.at += 2
            count = self._number()
            self._expect("_")
            return self._remember(_each(self._type(), lambda inner: Type(f"{inner} __vector({count})")))
        if one.isdecimal() or one in ("N", "Z") or two == "St":
            return self._remember(self._name())
        raise UnknownNameError

    def _maybe_template(self, name: Entity) -> Entity:
        return self._remember(self._with_arguments(name, False)) if self._peek("I") else name

    def _function(self) -> Type:
        noexcept = " noexcept" if self._take("Do") else ""
        self._expect("F")
        self._take("Y")
        returned = self._one(self._type())
        shown = self._parameters()
        reference = {"R": " &", "O": " &&"}[self._next()] if self.text[self.at : self.at + 1] in ("R", "O") else ""
        self._expect("E")
        return Type(returned.left, f"({shown}){reference}{noexcept}{returned.right}", wraps=True)

    def _array(self) -> Entity:
        self._expect("A")
        size = "" if self._peek("_") else str(self._number())
        self._expect("_")
        return _each(self._type(), lambda one: Type(one.left, f" [{size}]{one.right.lstrip()}", wraps=True))
