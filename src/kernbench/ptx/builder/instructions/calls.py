"""Calls of device functions."""

from kernbench.ptx.builder.instructions.memory import Memory
from kernbench.ptx.builder.issuing.body import Body
from kernbench.ptx.builder.values.options import Registers, Value
from kernbench.ptx.builder.values.values import Register
from kernbench.ptx.text.module import Group, Instruction, Name, Variable

__kernbench_internal__ = True

RESULT = "result"


class DeviceFunction:
    """A function that kernels call with `ctx.call(function, ...)`."""

    def __init__(self, body: Body):
        self.body = body
        self.name = body.name
        self.params = body.params
        self.needs = body.needs


class Calls(Memory):
    """Calls as compilers write them: parameters are declared in a scope of their own."""

    def call(self, function: DeviceFunction, *values: Value) -> Registers:
        """The results of a function built with `PtxFunction`: nothing, a register, or a tuple."""
        body = self.body
        if not hasattr(function, "needs"):
            raise self.error(f"{function!r} cannot be called: build one with PtxFunction(name)....build(program)")
        if function.name in body.callees and body.callees[function.name] is not function:
            raise self.error(f"two functions are called {function.name!r}: rename one")
        if len(values) != len(function.params):
            names = ", ".join(f"{v.type} {v.name}" for v in function.params)
            raise self.error(f"{function.name!r} takes {len(function.params)} values ({names}); got {len(values)}")
        body.needs.merge(function.needs)
        body.callees[function.name] = function
        number = body.unique("call")
        given = [self._stored(v.type, value) for v, value in zip(function.params, values, strict=True)]
        body.open_braces()
        arguments = [self._slot(f"{number}_{v.name}", v) for v in function.params]
        for name, variable, value in zip(arguments, function.params, given, strict=True):
            self.store_param(name, value, variable.type)
        results = [self._slot(f"{number}_result", v) for v in function.body.returns]
        self._call(function.name, arguments, results)
        made = [self.load_param(results[0], type, offset) for type, offset in function.body.results]
        body.close_braces()
        return None if not made else made[0] if len(made) == 1 else tuple(made)

    def _slot(self, name: str, variable: Variable) -> str:
        """A parameter variable of one call."""
        self.body.append(Variable("param", variable.type, name, variable.dims, variable.alignment))
        return name

    def _call(self, name: str, arguments: list[str], results: list[str]) -> None:
        groups = [Group(tuple(map(Name, results)))] if results else []
        tail = [Group(tuple(map(Name, arguments)))] if arguments else []
        self._append(Instruction("call", (), (*groups, Name(name), *tail)), (), ())

    def return_(self, *values: Value) -> None:
        """Return from a device function with its results."""
        results = self.body.results
        if len(values) != len(results):
            raise self.error(f"'{self.body.name}' returns {len(results)} values; got {len(values)}")
        for (type, offset), value in zip(results, values, strict=True):
            if isinstance(value, Register) and value.type != type:
                raise self.error(f"'{self.body.name}' returns {type}, and this is {value!r}")
            self.store_param(RESULT, value, type, offset)
        self.issue("ret", {}, ())
