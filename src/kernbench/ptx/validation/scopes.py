"""Names of a module and their scopes: registers and register ranges, variables, labels, functions."""

from dataclasses import dataclass, field

from kernbench.ptx.text.module import Block, Function, Label, Module, Registers, Statement, Variable

_COMPONENTS = {2: "xy", 4: "xyzw", 8: ""}
_COLOURS = dict(zip("rgba", "xyzw", strict=True))


@dataclass(frozen=True, slots=True)
class Register:
    """A declared register: its type, and its vector length."""

    type: str
    vector: int = 1


Declared = Register | Variable | Label | Function


@dataclass(slots=True)
class Scope:
    """The names of one block; `parent` is the enclosing scope."""

    parent: "Scope | None" = None
    names: dict[str, Declared] = field(default_factory=dict)
    ranges: dict[str, tuple[int, Register]] = field(default_factory=dict)
    _found: dict[str, Declared | None] = field(default_factory=dict)

    def find(self, name: str) -> Declared | None:
        """The declaration of a name here, or None; `%v.x` is a component of a vector register."""
        if name in self._found:
            return self._found[name]
        found = self._find(name)
        self._found[name] = found
        return found

    def _find(self, name: str) -> Declared | None:
        base, dot, component = name.partition(".")
        if dot:
            vector = self.find(base)
            known = isinstance(vector, Register) and _COLOURS.get(component, component) in _COMPONENTS.get(
                vector.vector, ""
            )
            return Register(vector.type) if known and isinstance(vector, Register) else None
        scope: Scope | None = self
        while scope is not None:
            declared = scope.names.get(name) or scope._in_range(name)
            if declared is not None:
                return declared
            scope = scope.parent
        return None

    def _in_range(self, name: str) -> Register | None:
        """`%r12` of `%r<20>`; a prefix may itself end with digits, so every split is tried."""
        digits = len(name) - len(name.rstrip("0123456789"))
        for length in range(1, min(digits, 7) + 1):
            number = name[-length:]
            if number[0] == "0" and length > 1:
                continue
            count, register = self.ranges.get(name[:-length], (0, None))
            if int(number) < count:
                return register
        return None

    def declare(self, name: str, what: Declared) -> bool:
        """Declare a name; False if the block already has it."""
        if name in self.names:
            return False
        self.names[name] = what
        return True


def module_scope(module: Module) -> Scope:
    """Variables and functions of the module; definitions take precedence over declarations."""
    scope = Scope()
    scope.names.update(module.variables)
    scope.names.update(module.functions)
    scope.names.update({name: kernel.function for name, kernel in module.kernels.items()})
    return scope


def function_scope(function: Function, parent: Scope) -> Scope:
    """Parameters and results of a function."""
    scope = Scope(parent)
    for variable in (*function.returns, *function.params):
        scope.declare(variable.name, Register(variable.type, variable.vector) if variable.space == "reg" else variable)
    return scope


def block_scope(block: Block, parent: Scope) -> tuple[Scope, list[tuple[str, Statement]]]:
    """The scope of a block, and names declared twice, each with the later declaration."""
    scope = Scope(parent)
    twice: list[tuple[str, Statement]] = []
    for statement in block.statements:
        if isinstance(statement, Registers):
            twice.extend((name, statement) for name in _declare_registers(scope, statement))
        elif isinstance(statement, (Variable, Label)) and not scope.declare(statement.name, statement):
            twice.append((statement.name, statement))
    return scope, twice


def _declare_registers(scope: Scope, registers: Registers) -> list[str]:
    register = Register(registers.type, registers.vector)
    twice = []
    for name, count in registers.names:
        if not count:
            if scope._in_range(name) is not None or not scope.declare(name, register):
                twice.append(name)
        elif name in scope.ranges:
            twice.append(f"{name}<{count}>")
        else:
            scope.ranges[name] = count, register
    return twice
