"""Validates a module's header, its declared names and its functions' directives as ptxas does."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernbench.common.errors import unknown
from kernbench.ptx.isa.targets import NEWEST, OPTIONS, TARGETS, known_version, known_versions, target_number
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Directive, Function, Item, Module, Variable

_MOST_PARAMETER_BYTES = 32764


@dataclass(frozen=True, slots=True)
class _Row:
    """A directive of a function's header: where it is valid, how many numbers it takes, and which versions have it."""

    on: str
    least: int = 0
    most: int = 0
    positive: bool = False
    version: tuple[int, int] = (1, 0)
    sm: int = 10
    until: tuple[int, int] | None = None


_PERFORMANCE = {
    "maxntid": _Row("entry", 1, 3, positive=True),
    "reqntid": _Row("entry", 1, 3, positive=True, version=(2, 1)),
    "minnctapersm": _Row("entry", 1, 1, positive=True, version=(2, 0)),
    "maxnctapersm": _Row("entry", 1, 1, positive=True, until=(2, 0)),
    "maxnreg": _Row("entry", 1, 1, positive=True),
    "reqnctapercluster": _Row("entry", 1, 3, version=(7, 8), sm=90),
    "maxclusterrank": _Row("entry", 1, 1, version=(7, 8), sm=90),
    "explicitcluster": _Row("entry", version=(7, 8), sm=90),
    "blocksareclusters": _Row("entry", version=(9, 0), sm=90),
    "noreturn": _Row("func", version=(6, 4), sm=30),
    "abi_preserve": _Row("func", 1, 1, version=(9, 0), sm=80),
    "abi_preserve_control": _Row("func", 1, 1, version=(9, 0), sm=80),
}
_LARGEST = (1 << 32) - 1
# mutually exclusive pairs
_CONFLICTS = (("maxntid", "reqntid"), ("maxclusterrank", "reqnctapercluster"))
_NEEDED = {"blocksareclusters": ("reqntid", "reqnctapercluster")}


def problem_at(module: Module, line: int, message: str, word: str = "") -> PtxError:
    """A problem at a line of the module's text, at the first occurrence of `word`."""
    text = module.line_text(line)
    found = re.search(rf"(?<![\w$%.]){re.escape(word)}(?![\w$])", text) if word else None
    return PtxError(message, line, found.start() + 1 if found else 0, text)


def head_problems(module: Module) -> Iterator[PtxError]:
    """Problems of the module's version, target and address size."""

    def problem(directive: str, message: str, word: str) -> PtxError:
        lines = module.source.split("\n") if module.source else []
        line = next((n for n, text in enumerate(lines, 1) if text.lstrip().startswith(directive)), 0)
        return problem_at(module, line, message, word)

    major, minor = module.version
    if not known_version(module.version):
        newer = module.version > NEWEST
        remedy = f"; {NEWEST[0]}.{NEWEST[1]} is the newest one known here: compile for an older one" if newer else ""
        message = f"there is no .version {major}.{minor}{remedy}; versions are {known_versions()}"
        yield problem(".version", message, f"{major}.")
    for name in module.target:
        if (refusal := _target_problem(name, module)) is not None:
            yield problem(".target", refusal, name)
    modes = [name for name in module.target if name.startswith("texmode_")]
    if len(set(modes)) > 1:
        yield problem(".target", f"{modes[0]} and {modes[1]} contradict each other; keep one", modes[1])


def _target_problem(name: str, module: Module) -> str | None:
    if name in OPTIONS:
        old = target_number(module.arch) < 13
        return None if name != "map_f64_to_f32" or old else f"{name} goes with targets before sm_13 only; remove it"
    plain = name.replace("compute_", "sm_")
    if plain not in TARGETS:
        return unknown("target", name, (*TARGETS, *OPTIONS))
    first = TARGETS[plain]
    if module.version < first:
        have, need = (".".join(map(str, version)) for version in (module.version, first))
        return f"{name} needs .version {need}, and the module says {have}"
    return None


def function_problems(module: Module, function: Function) -> Iterator[PtxError]:
    """Problems of the directives and parameters in a function's header."""
    if "extern" in function.linkage and function.body is not None:
        yield problem_at(
            module, function.line, f"{function.name!r} is .extern and has a body; remove one", function.name
        )
    for name, numbers in function.performance:
        message = _performance_problem(name, numbers, function, module)
        if message is not None:
            yield _in_head(module, function, message, f".{name}")
    names = dict(function.performance)
    for one, other in _CONFLICTS:
        if one in names and other in names:
            yield _in_head(module, function, f".{one} and .{other} contradict each other; keep one", f".{other}")
    for name, needed in _NEEDED.items():
        missing = [f".{other}" for other in needed if other not in names]
        if name in names and missing:
            yield _in_head(module, function, f".{name} needs {' and '.join(missing)} beside it", f".{name}")
    yield from _parameter_problems(module, function)


def _in_head(module: Module, function: Function, message: str, word: str) -> PtxError:
    """A problem at a directive between a function's name and its body."""
    end = function.body.line if function.body is not None else function.line + 64
    lines = range(function.line, end + 1)
    return problem_at(module, next((n for n in lines if word in module.line_text(n)), function.line), message, word)


def _performance_problem(name: str, numbers: tuple[int, ...], function: Function, module: Module) -> str | None:
    row = _PERFORMANCE.get(name)
    if row is None:
        return unknown("directive of a function", f".{name}", [f".{known}" for known in _PERFORMANCE])
    if row.on != function.kind and function.kind != "prototype":
        return f".{name} belongs to {'a kernel (.entry)' if row.on == 'entry' else 'a function (.func)'}"
    if not row.least <= len(numbers) <= row.most:
        wanted = f"{row.least} to {row.most}" if row.most > row.least else str(row.most)
        return f".{name} takes {wanted} numbers, not {len(numbers)}"
    strange = next((n for n in numbers if not (1 if row.positive else 0) <= n <= _LARGEST), None)
    if strange is not None:
        return f".{name} {strange}: give numbers from {1 if row.positive else 0} to {_LARGEST}"
    if name == "noreturn" and function.returns:
        return f"{function.name!r} returns a value, so it cannot be .noreturn"
    return _availability(name, row, module)


def _availability(name: str, row: _Row, module: Module) -> str | None:
    have = ".".join(map(str, module.version))
    if module.version < row.version:
        return f".{name} needs .version {'.'.join(map(str, row.version))}, and the module says {have}"
    if row.until is not None and module.version > row.until:
        return f".{name} ended with .version {'.'.join(map(str, row.until))}; use .minnctapersm"
    if 0 < target_number(module.arch) < row.sm:
        return f".{name} needs sm_{row.sm} or later, and the module's target is {module.arch}"
    return None


def _parameter_problems(module: Module, function: Function) -> Iterator[PtxError]:
    seen: set[str] = set()
    for variable in (*function.returns, *function.params):
        if variable.name in seen and variable.name != "_":
            yield problem_at(
                module, variable.line, f"{function.name!r} has two parameters {variable.name!r}", variable.name
            )
        seen.add(variable.name)
        if variable.type == "pred" and variable.space != "reg":
            yield problem_at(
                module, variable.line, f"{variable.name!r}: predicates live in registers only", variable.name
            )
    if function.kind == "entry":
        yield from _entry_parameter_problems(module, function)
    for variable in function.params[:-1]:
        if None in variable.dims and function.kind == "func":
            message = f"{variable.name!r} has no size; only the last parameter may be unsized"
            yield problem_at(module, variable.line, message, variable.name)


def _entry_parameter_problems(module: Module, function: Function) -> Iterator[PtxError]:
    end = 0
    for variable in function.params:
        if variable.space != "param":
            message = f"{variable.name!r} is .{variable.space}; a kernel's parameters are .param"
            yield problem_at(module, variable.line, message, variable.name)
        if not variable.size:
            yield problem_at(module, variable.line, f"kernel parameter {variable.name!r} needs a size", variable.name)
        end = -(-end // variable.natural_alignment) * variable.natural_alignment + (variable.size or 0)
    if end > _MOST_PARAMETER_BYTES:
        message = f"the parameters of {function.name!r} have {end} bytes; a kernel has {_MOST_PARAMETER_BYTES} at most"
        yield problem_at(module, function.line, message, function.name)


def name_problems(module: Module) -> Iterator[PtxError]:
    """Names that the module declares twice, or inconsistently."""
    seen: dict[str, Item] = {}
    for item in module.items:
        if isinstance(item, Directive):
            yield from _alias_problems(module, item)
            continue
        before = seen.get(item.name)
        if before is not None and (message := _clash(before, item)) is not None:
            at = f"; it stands at line {before.line} already" if before.line else ""
            yield problem_at(module, item.line, message + at, item.name)
        if before is None or not _is_definition(before):
            seen[item.name] = item


def _alias_problems(module: Module, item: Directive) -> Iterator[PtxError]:
    if item.name != "alias":
        return
    names = [name.strip() for name in item.text.rstrip(";").split(",")]
    for name in names:
        if name not in module.functions:
            yield problem_at(module, item.line, f".alias names {name!r}, which is no function of this module", name)
    if len(set(names)) < len(names):
        yield problem_at(module, item.line, f"{names[0]!r} cannot be another name of itself", names[0])


def _is_definition(item: Function | Variable | Directive) -> bool:
    return item.body is not None if isinstance(item, Function) else getattr(item, "linkage", "") != "extern"


def _clash(before: Item, item: Function | Variable) -> str | None:
    """Why two declarations of one name are incompatible, or None."""
    for kind, check in _CLASHES:
        if isinstance(before, kind) and isinstance(item, kind):
            return check(before, item)
    return f"{item.name!r} is declared as a function and as a variable"


def _function_clash(before: Function, item: Function) -> str | None:
    if before.kind != item.kind:
        return f"{item.name!r} is declared as .{before.kind} and as .{item.kind}"
    if before.body is not None:
        return (
            f"{item.name!r} is defined twice" if item.body is not None else f"{item.name!r} is declared after its body"
        )
    if [_signature(v) for v in (*before.returns, *before.params)] != [
        _signature(v) for v in (*item.returns, *item.params)
    ] or len(before.params) != len(item.params):
        return f"{item.name!r} has other parameters here than where it was declared"
    return None


def _signature(variable: Variable) -> tuple[object, ...]:
    return variable.space, variable.type, variable.dims, variable.vector, variable.natural_alignment


def _variable_clash(before: Variable, item: Variable) -> str | None:
    if before.linkage != "extern" and item.linkage != "extern":
        return f"{item.name!r} is declared twice"
    if (before.space, before.type, before.vector) != (item.space, item.type, item.vector):
        return f"{item.name!r} is .{before.space} .{before.type} in another declaration"
    if before.linkage == "extern" and not item.linkage:
        return f"{item.name!r} is .extern elsewhere; define it .visible"
    return None


_CLASHES: tuple[tuple[type, Callable[..., str | None]], ...] = (
    (Function, _function_clash),
    (Variable, _variable_clash),
)
