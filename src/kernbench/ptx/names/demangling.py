"""Kernels and functions by the names that people wrote: for titles, messages and choosing one."""

import hashlib
import re
from collections.abc import Collection
from functools import lru_cache

from kernbench.common.errors import BenchError, unknown
from kernbench.ptx.names.itanium import Name, UnknownNameError

# characters of a name in a title; what is longer is cut
_WIDTH = 96
_ROOM = 10_000
# what nvcc puts before static functions of programs of several files: how many letters name the file, and these
_STATIC = re.compile(r"__nv_static_(\d{1,4})_")
# what Numba adds to a name: the options of the compilation in 92 letters, behind the number of the specialisation
_LONG_TAG = re.compile(r"\[abi:\w{24,}\]")


@lru_cache(4096)
def _read(name: str) -> tuple[str, str]:
    """A C++ name without and with its parameters; a name that is not understood as it is."""
    static = _STATIC.match(name)
    mangled = name[static.end() + int(static[1]) + 1 :] if static else name
    if not mangled.startswith("_Z") or len(name) > _ROOM:
        return name, name
    try:
        return Name(mangled).read()
    except UnknownNameError:
        return name, name


def demangled(name: str) -> str:
    """A name as C++ has it, with parameters: `void scale<float, 2>(float*)` for _Z5scaleIfLi2EEvPT_."""
    return _read(name)[1]


def title(name: str) -> str:
    """A name without parameters, for tables and file names; a long one is cut, and a digest keeps two apart."""
    shown = _LONG_TAG.sub("", _read(name)[0])
    if len(shown) <= _WIDTH:
        return shown
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:6]
    return f"{shown[: _WIDTH - 12]}... #{digest}"


def named(name: str) -> dict[str, str]:
    """A kernel's name as the origin of a run has it: to be shown, and its symbol where that is another."""
    return {"kernel": title(name)} if title(name) == name else {"kernel": title(name), "symbol": name}


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _plain(name: str) -> str:
    """Without template arguments, those of scopes included."""
    found, depth = "", 0
    for i, letter in enumerate(name):
        opens = letter == "<" and not name[:i].endswith(("operator", "operator<"))
        depth += opens
        found += letter if not depth else ""
        depth -= letter == ">" and depth > 0
    return found


def _forms(name: str) -> list[set[str]]:
    """What a name may be called, from exact to vague."""
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
    """Behind the last `::` outside template arguments and parameters."""
    depth, start = 0, 0
    for i, letter in enumerate(name):
        depth += letter in "<({"
        depth -= letter in ">)}" and depth > 0
        if depth == 0 and name.startswith("::", i):
            start = i + 2
    return name[start:]


def choose(kind: str, names: Collection[str], wanted: str) -> str:
    """The one of `names` that is meant: by its symbol, its C++ name, or a part of that which fits one only."""
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
