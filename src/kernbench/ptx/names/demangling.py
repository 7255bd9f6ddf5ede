"""Kernels and functions by their names in the source: for titles, messages, and to choose one by name."""

import hashlib
import re
from collections.abc import Collection
from functools import lru_cache

from kernbench.common.errors import BenchError, unknown
from kernbench.ptx.names.itanium import Name, UnknownNameError

# longest title in characters; longer names are cut
_WIDTH = 96
_ROOM = 10_000
# prefix that nvcc adds to static functions of programs of several files: the length of the file's tag, and the tag
_STATIC = re.compile(r"__nv_static_(\d{1,4})_")
# what Numba adds to a name, after the number of the specialisation: the compilation options in base 92
_LONG_TAG = re.compile(r"\[abi:\w{24,}\]")


@lru_cache(4096)
def _read(name: str) -> tuple[str, str]:
    """A name without and with its parameters, demangled if it can be."""
    static = _STATIC.match(name)
    mangled = name[static.end() + int(static[1]) + 1 :] if static else name
    if not mangled.startswith("_Z") or len(name) > _ROOM:
        return name, name
    try:
        return Name(mangled).read()
    except UnknownNameError:
        return name, name


def demangled(name: str) -> str:
    """A demangled name with parameters: `void scale<float, 2>(float*)` for _Z5scaleIfLi2EEvPT_."""
    return _read(name)[1]


def title(name: str) -> str:
    """A demangled name without parameters; long ones are cut and get a digest that keeps them distinct."""
    shown = _LONG_TAG.sub("", _read(name)[0])
    if len(shown) <= _WIDTH:
        return shown
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:6]
    return f"{shown[: _WIDTH - 12]}... #{digest}"


def named(name: str) -> dict[str, str]:
    """A kernel's name for a run's origin: its title, and its symbol if that differs."""
    return {"kernel": title(name)} if title(name) == name else {"kernel": title(name), "symbol": name}


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _plain(name: str) -> str:
    """A name without template arguments, including those of its scopes."""
    found, depth = "", 0
    for i, letter in enumerate(name):
        opens = letter == "<" and not name[:i].endswith(("operator", "operator<"))
        depth += opens
        found += letter if not depth else ""
        depth -= letter == ">" and depth > 0
    return found


def _forms(name: str) -> list[set[str]]:
    """Names by which a kernel may be chosen, from exact to vague."""
    short, whole = _read(name)
    plain = _plain(short)
    return [
        {name},
        {_squeezed(whole), _squeezed(short), title(name)},
        {_squeezed(_unscoped(short))},
        {_squeezed(plain)},
        {_squeezed(_unscoped(plain))},
    ]


def _unscoped(name: str) -> str:
    """What follows the last `::` outside template arguments and parameters."""
    depth, start = 0, 0
    for i, letter in enumerate(name):
        depth += letter in "<({"
        depth -= letter in ">)}" and depth > 0
        if depth == 0 and name.startswith("::", i):
            start = i + 2
    return name[start:]


def choose(kind: str, names: Collection[str], wanted: str) -> str:
    """The one of `names` that `wanted` means: its symbol, its C++ name, or a part of that which fits only one."""
    forms = {name: _forms(name) for name in names}
    for step in range(5):
        for given in (wanted, _squeezed(wanted)):
            found = [name for name in names if given in forms[name][step]]
            if len(found) == 1:
                return found[0]
            if found:
                shown = ", ".join(repr(demangled(name)) for name in found)
                raise BenchError(f"{kind} {wanted!r} is one of {len(found)}; say which: {shown}")
    raise BenchError(unknown(kind, wanted, [title(name) for name in names] or ["none: the module has no .entry"]))
