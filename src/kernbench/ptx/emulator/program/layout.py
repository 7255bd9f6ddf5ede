"""Memory layout: a kernel's shared memory, and the frame of each function in local memory."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from kernbench.ptx.emulator.program.program import Code, SharedVariable
from kernbench.ptx.emulator.program.scopes import Line, Scope
from kernbench.ptx.names.names import qualified_name, source_name
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Function, Kernel, Module, Variable
from kernbench.ptx.text.walking import mentions, names_in

# gap between shared variables, and after local ones, so that an overrun does not silently hit the next variable
_GAP = 16
# shared memory that the system reserves in each block since sm_80, zero at first; libraries use it
RESERVED = "%reserved_smem"
RESERVED_BYTES = 1024
# maximal local memory of a thread, in bytes
LOCAL_BYTES = 1 << 19


class SharedLayout:
    """Shared memory: static variables from address 0 upward, dynamic memory after them."""

    def __init__(self) -> None:
        self.variables: list[SharedVariable] = []
        self.offsets: dict[tuple[int, str], int] = {}
        self.declared = 0
        self._end = 0
        self._dynamic: list[tuple[int, Variable]] = []
        self.alignment = 16

    def add(self, scope: int, variable: Variable) -> None:
        """Allocate a variable; unsized ones all begin where the static ones end."""
        if (scope, variable.name) in self.offsets:
            return
        alignment = variable.natural_alignment
        if not variable.size:
            self._dynamic.append((scope, variable))
            self.alignment = max(self.alignment, alignment)
            self.offsets[scope, variable.name] = -1
            return
        start = -(-(self._end + _GAP if self._end else 0) // alignment) * alignment
        self.offsets[scope, variable.name] = start
        self.variables.append(SharedVariable(variable.name, start, variable.size))
        self._end = start + variable.size
        self.declared += variable.size

    def reserve(self) -> None:
        """Allocate the system's reserved bytes, which do not count as declared."""
        if (0, RESERVED) not in self.offsets:
            start = self.offsets[0, RESERVED] = -(-(self._end + _GAP if self._end else 0) // 128) * 128
            self.variables.append(SharedVariable(RESERVED, start, RESERVED_BYTES))
            self._end = start + RESERVED_BYTES

    def close(self) -> int:
        """Lay out the dynamic variables; returns the bytes of static variables, gaps included."""
        end = -(-(self._end + _GAP if self._end else 0) // self.alignment) * self.alignment
        for scope, variable in self._dynamic:
            self.offsets[scope, variable.name] = end
            self.variables.append(SharedVariable(variable.name, end, None))
        self.variables = _as_in_the_source(self.variables)
        return end


def _as_in_the_source(variables: list[SharedVariable]) -> list[SharedVariable]:
    """The variables by their source names, with their functions if names are ambiguous."""
    names = [variable.name for variable in variables]
    for shorter in (qualified_name, source_name):
        shortened = [shorter(variable.name) for variable in variables]
        counts = Counter(shortened)
        names = [new if counts[new] == 1 else old for new, old in zip(shortened, names, strict=True)]
    return [replace(variable, name=name) for variable, name in zip(variables, names, strict=True)]


def all_scopes(lines: Iterable[Line], outer: Scope) -> list[Scope]:
    """Every scope that contains an instruction, and its enclosing scopes."""
    found: dict[int, Scope] = {id(outer): outer}
    for line in lines:
        scope: Scope | None = line.scope
        while scope is not None and id(scope) not in found:
            found[id(scope)] = scope
            scope = scope.parent
    return list(found.values())


def lay_out_frame(code: Code, scopes: Iterable[Scope], entry: bool) -> None:
    """Give each local variable and call parameter an offset in the function's frame."""
    end = 0
    for scope in scopes:
        for variable in scope.variables.values():
            kernel_parameter = entry and id(scope) == code.scope and variable in code.params
            if variable.space not in ("local", "param") or kernel_parameter:
                continue
            alignment = variable.natural_alignment
            end = -(-end // alignment) * alignment
            code.frame[id(scope), variable.name] = end
            code.variables.append((variable.name, end, variable.size or 0))
            end += variable.size or 0
            if end > LOCAL_BYTES:
                message = f"'{variable.name}' ends at byte {end:,} of the local memory of '{code.name}'"
                raise PtxError(f"{message}; a thread has {LOCAL_BYTES:,} bytes: use a global array", variable.line)
            end += _GAP if variable.space == "local" else 0
    code.frame_bytes = -(-end // 16) * 16


def reachable(kernel: Kernel, module: Module) -> dict[str, Function]:
    """The kernel and every function with a body that it may call, by name.

    A call through a register may reach any function of the module whose address is taken, even in another kernel: an
    earlier launch may have left the address in memory, as objects with virtual functions do.
    """
    found: dict[str, Function] = {}
    pending = [kernel.function]
    indirect = False
    while pending:
        function = pending.pop()
        if function.name in found or function.body is None:
            continue
        found[function.name] = function
        named = mentions(function.body)
        names = _with_tables({*named.names, *named.targets}, module)
        # a callee that is not a function is a register
        if not indirect and any(callee not in module.functions for callee in named.callees):
            indirect = True
            names |= _addresses_taken(module)
        pending.extend(module.functions[name] for name in sorted(names) if name in module.functions)
    return found


def _addresses_taken(module: Module) -> set[str]:
    """Functions whose names occur in initial values, or in instructions other than as a callee."""
    found = {name for variable in module.variables.values() for name in names_in(variable.initial)}
    bodies = [one.body for one in module.functions.values()]
    bodies += [kernel.function.body for kernel in module.kernels.values()]
    return found.union(*(mentions(body).taken for body in bodies if body is not None))


def _with_tables(names: set[str], module: Module) -> set[str]:
    """The names, and the names in the initial values of those: functions can be reached through (nested) tables."""
    pending = list(names)
    while pending:
        variable = module.variables.get(pending.pop())
        further = set(names_in(variable.initial)) - names if variable is not None else set()
        names |= further
        pending += further
    return names
