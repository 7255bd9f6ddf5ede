"""Kernels, device functions and modules built in Python."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Self

from kernbench.ptx.builder.asynchronous.copies import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES
from kernbench.ptx.builder.context import Context
from kernbench.ptx.builder.instructions.calls import RESULT, DeviceFunction
from kernbench.ptx.builder.instructions.memory import BLOCK_SHARED
from kernbench.ptx.builder.issuing.assigned import check_assigned
from kernbench.ptx.builder.issuing.body import NAME, Body
from kernbench.ptx.builder.issuing.needs import Needs
from kernbench.ptx.builder.values.banks import scalar, variable_type
from kernbench.ptx.builder.values.errors import PtxBuildError
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Directive, Function, Item, Kernel, Module, Variable
from kernbench.ptx.text.parser import parse
from kernbench.ptx.validation.validation import validate
from kernbench.result.finding import SourceLocation

__kernbench_internal__ = True

Version = str | tuple[int, int]
Program = Callable[[Context], object]


def _version(version: Version | None) -> tuple[int, int] | None:
    if not isinstance(version, str):
        return version
    major, dot, minor = version.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise PtxBuildError(f"version={version!r}: a version is written as '8.0'")
    return int(major), int(minor)


def _named(what: str, name: str) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise PtxBuildError(
            f"{name!r} cannot be the name of a {what}: letters, digits, _ and $, beginning with a letter"
        )
    return name


class _Signature:
    """Name and parameters of a kernel or function."""

    def __init__(self, name: str):
        self.name = _named("function", name)
        self._params: list[Variable] = []

    def param(self, type: str, name: str, *, count: int | None = None, align: int | None = None) -> Self:
        """Add a parameter; with `count` an array of bytes or values, passed by value; "tensormap" is a tensor map."""
        if type == "tensormap":
            if count is not None or align is not None:
                raise PtxBuildError(f"parameter {name!r}: a tensor map has a size and an alignment of its own")
            type, count, align = "b8", TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT
        scalar(type)
        if any(variable.name == name for variable in self._params):
            raise PtxBuildError(f"'{self.name}' has two parameters {name!r}: rename one")
        dims = () if count is None else (count,)
        self._params.append(Variable("param", variable_type(type), _named("parameter", name), dims, align))
        return self


class PtxFunction(_Signature):
    """A device function: parameters, results, and a program that ends with `ctx.return_(...)`."""

    def __init__(self, name: str, *, target: str | None = None, version: Version | None = None):
        super().__init__(name)
        self._results: list[tuple[str, int]] = []
        self._needs = Needs(target, _version(version))

    def returns(self, *types: str) -> Self:
        """The types of its results."""
        for type in types:
            end = sum((self._results[-1][1], scalar(self._results[-1][0]).nbytes)) if self._results else 0
            size = scalar(type).nbytes
            self._results.append((type, -(-end // size) * size))
        return self

    def build(self, program: Program) -> DeviceFunction:
        """Run `program` with a context, and return the function."""
        body = Body(self.name, self._needs, tuple(self._params), self._returned(), tuple(self._results))
        _build(body, program)
        return DeviceFunction(body)

    def _returned(self) -> tuple[Variable, ...]:
        """The PTX return value: one value, or several in the bytes of a structure."""
        if len(self._results) < 2:
            return tuple(Variable("param", variable_type(type), RESULT) for type, _ in self._results)
        sizes = [scalar(type).nbytes for type, _ in self._results]
        return (Variable("param", "b8", RESULT, (self._results[-1][1] + sizes[-1],), max(sizes)),)


class PtxModule:
    """A module with several kernels, their constants and device functions, version and target."""

    def __init__(self, *, target: str | None = None, version: Version | None = None, lines: bool = True):
        self.needs = Needs(target, _version(version))
        self.lines = lines
        self.kernels: dict[str, PtxKernel] = {}

    def kernel(self, name: str) -> "PtxKernel":
        """A kernel of this module."""
        if name in self.kernels:
            raise PtxBuildError(f"the module has a kernel {name!r} already: choose another name")
        return PtxKernel(name, module=self)

    def build(self) -> Module:
        """The module with all kernels that have been built."""
        return self.holding(*self.kernels.values())

    def holding(self, *kernels: "PtxKernel") -> Module:
        """A module with these kernels, and everything they use."""
        files: dict[str, int] | None = {} if self.lines else None
        bodies = [kernel.body for kernel in kernels if kernel.body is not None]
        callees = _callees(bodies)
        functions = [body.function("func", files) for body in callees.values()]
        entries = [kernel.entry(files) for kernel in kernels if kernel.body is not None]
        variables = _module_variables([*bodies, *callees.values()])
        directives = [Directive("file", f'{number} "{_escaped(file)}"') for file, number in (files or {}).items()]
        target, version = self.needs.chosen()
        items: tuple[Item, ...] = (*variables, *functions, *entries, *directives)
        text = Module(version, (target,), 64, items).emit()
        try:
            module = parse(text)
            validate(module)
        except PtxError as problem:
            raise PtxBuildError(problem.message, _python_line(text, problem.line, files or {})) from None
        return module


class PtxKernel(_Signature):
    """A kernel: `PtxKernel("name").param("u64", "x_ptr").build(program)`.

    `target` and `version` are derived from what the program uses, unless they are given; then anything they lack is an
    error. With `lines`, `.loc` directives name the Python line of each instruction, and findings show it.
    """

    def __init__(
        self,
        name: str,
        *,
        target: str | None = None,
        version: Version | None = None,
        lines: bool = True,
        module: PtxModule | None = None,
    ):
        super().__init__(name)
        self.module = module or PtxModule(target=target, version=version, lines=lines)
        self.body: Body | None = None
        self._shared: Variable | None = None
        self._performance: dict[str, tuple[int, ...]] = {}

    def shared_memory(self, nbytes: int, align: int = 16) -> Self:
        """Declare so many bytes of shared memory, for `ctx.shared_memory(type, offset=...)`."""
        if not isinstance(nbytes, int) or nbytes < 1:
            raise PtxBuildError(f"shared_memory({nbytes!r}): give a positive number of bytes")
        self._shared = Variable("shared", "b8", BLOCK_SHARED, (nbytes,), align)
        return self

    def reqntid(self, x: int, y: int = 1, z: int = 1) -> Self:
        """Require launches to have this block size."""
        return self._directive("reqntid", x, y, z)

    def maxntid(self, x: int, y: int = 1, z: int = 1) -> Self:
        """Limit the block size of launches."""
        return self._directive("maxntid", x, y, z)

    def minnctapersm(self, blocks: int) -> Self:
        """The number of blocks that should fit on an SM."""
        return self._directive("minnctapersm", blocks)

    def maxnreg(self, registers: int) -> Self:
        """Limit the registers per thread."""
        return self._directive("maxnreg", registers)

    def cluster(self, x: int, y: int = 1, z: int = 1) -> Self:
        """Require launches to have this cluster size."""
        where = PtxBuildError("").where
        self.module.needs.feature(".reqnctapercluster", 90, (7, 8), where)
        return self._directive("reqnctapercluster", x, y, z)

    def _directive(self, name: str, *numbers: int) -> Self:
        if any(not isinstance(n, int) or n < 1 for n in numbers):
            raise PtxBuildError(f".{name} {numbers}: positive numbers are wanted")
        self._performance[name] = numbers
        return self

    def build(self, program: Program) -> Kernel:
        """Run `program` with a context, and return the kernel, checked, in a module of its own."""
        if self.body is not None:
            raise PtxBuildError(f"'{self.name}' is already built")
        body = Body(self.name, self.module.needs, tuple(self._params))
        if self._shared is not None:
            body.claim(BLOCK_SHARED)
            body.variables[BLOCK_SHARED] = self._shared
        _build(body, program)
        self.body = body
        self.module.kernels[self.name] = self
        return self.module.holding(self).kernels[self.name]

    def entry(self, files: dict[str, int] | None) -> Function:
        """The kernel as a function of its module."""
        assert self.body is not None
        return self.body.function("entry", files, linkage="visible", performance=tuple(self._performance.items()))


def _build(body: Body, program: Program) -> None:
    """Run the program, and check the finished body."""
    if not callable(program):
        raise PtxBuildError(f"build({program!r}): give the function that writes '{body.name}', as in build(program)")
    try:
        signature(program).bind(None)
    except TypeError:
        raise PtxBuildError(f"the program of '{body.name}' takes one argument, the context: def program(ctx)") from None
    for variable in (*body.params, *body.returns):
        body.claim(variable.name)
    context = Context(body)
    program(context)
    if body.open:
        raise PtxBuildError(f"'{body.name}' ends inside of {type(body.open[-1]).__name__.lower()}")
    if body.falls_through():
        if body.returns:
            raise PtxBuildError(f"'{body.name}' ends without ctx.return_(value)")
        context.ret()
    body.check_labels()
    check_assigned(body)
    body.closed = True


def _callees(bodies: list[Body]) -> Mapping[str, Body]:
    """The bodies of all called functions, each before its callers."""
    found: dict[str, Body] = {}
    for body in bodies:
        for function in body.callees.values():
            found |= {name: inner for name, inner in _callees([function.body]).items() if name not in found}
            found.setdefault(function.name, function.body)
    return found


def _module_variables(bodies: list[Body]) -> list[Variable]:
    found: dict[str, Variable] = {}
    for body in bodies:
        for name, variable in body.module_variables.items():
            known = found.get(name)
            found[name] = variable if known is None or (known.alignment or 0) < (variable.alignment or 0) else known
    return list(found.values())


def _python_line(text: str, line: int, files: dict[str, int]) -> SourceLocation | None:
    """The Python line in the last `.loc` before a line of the text."""
    for written in reversed(text.split("\n")[:line]):
        words = written.split()
        if words[:1] == [".loc"]:
            return SourceLocation(
                next(file for file, number in files.items() if number == int(words[1])), int(words[2])
            )
    return None


def _escaped(file: str) -> str:
    return file.replace("\\", "\\\\").replace('"', '\\"')
