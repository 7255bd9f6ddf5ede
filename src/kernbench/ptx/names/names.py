"""Mangled names of variables, converted back to those in the source."""

import re

# after the function, a static variable's mangled name has its length and name, and perhaps a discriminator
_LAST = re.compile(r"E(\d+)")
_WHICH = re.compile(r"(?:_\d|__\d+_)?")
_LENGTH = re.compile(r"\d+")
_OLD = re.compile(r"__cuda_local_var_\d+_\d+_(?:non_)?const_(\w+)$")


def source_name(name: str) -> str:
    """A variable's name in the source: `tile` for _ZZ6kernelPfE4tile; unknown forms are returned unchanged."""
    old = _OLD.match(name)
    if old is not None:
        return old[1]
    if name.startswith("_ZZ"):
        return _static(name) or name
    parts = _parts(name[3:]) if name.startswith(("_ZN", "_ZL")) else []
    return "::".join(parts) or name


def qualified_name(name: str) -> str:
    """A variable's name with the function of a static variable, `kernel::tile`; unknown forms are unchanged."""
    inner = _static(name) if name.startswith("_ZZ") else ""
    if not inner:
        return source_name(name)
    nested = name[3:4] == "N"
    outer = _parts(name[4 if nested else 3 :], nested)
    return "::".join([*outer, inner]) if outer else name


def _static(name: str) -> str:
    """The name of a static variable, after its function: the first candidate that extends to the end of the symbol."""
    for found in _LAST.finditer(name):
        length, rest = int(found[1]), name[found.end() :]
        if length and _WHICH.fullmatch(rest[length:]) and len(rest) >= length:
            return rest[:length]
    return ""


def _parts(text: str, nested: bool = True) -> list[str]:
    """Length-prefixed names from the start of a text: one, or as many nested scopes as there are."""
    parts: list[str] = []
    while length := _LENGTH.match(text):
        size, text = int(length[0]), text[length.end() :]
        if not 0 < size <= len(text):
            return []
        parts.append(text[:size])
        text = text[size:]
        if not nested:
            break
    return parts
