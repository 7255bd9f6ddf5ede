"""What the values of a swept key mean to a bench: `4` and `04` are one number, `1 TB/s` and `1000 GB/s` one rate."""

from collections.abc import Callable, Hashable, Mapping
from itertools import islice

from kernbench.bench.definition.machines import machine_key
from kernbench.bench.definition.parameters import meaning
from kernbench.common.errors import KernbenchError
from kernbench.machine.keys import Key
from kernbench.sweep.planning.values import Axis, Counted, Listed

# values of one part whose meanings are compared one by one
_MOST_COMPARED = 10_000
Meaning = Callable[[str], object]


def meaning_of(setting: str, parameters: type, keys: Mapping[str, Key]) -> Meaning:
    """What texts of this setting are read as; `keys` are those of the machine."""
    key = machine_key(setting)
    return (lambda text: meaning(parameters, setting, text)) if key is None else keys[key].read


def plain_numbers(texts: list[str], parameters: type, setting: str) -> list[str]:
    """Whole numbers of a parameter as they are usually written: `04` and `+4` as `4`. Other texts stay."""
    if machine_key(setting) is not None or setting not in getattr(parameters, "__dataclass_fields__", {}):
        return texts
    plain = []
    for text in texts:
        read = _read(lambda one: meaning(parameters, setting, one), text)
        plain.append(str(read) if type(read) is int and text.strip("+-0123456789_ ") == "" else text)
    return plain


def alike(axis: Axis, meaning: Meaning) -> tuple[str, str] | None:
    """Two values, written differently, that are the same; None if all differ. Values that cannot be read differ."""
    seen: dict[Hashable, str] = {}
    for part in axis.parts:
        for text in islice((part[index] for index in range(len(part))), _MOST_COMPARED):
            read = _read(meaning, text)
            if read is None:
                continue
            earlier = seen.setdefault(read, text)
            if earlier != text:
                return earlier, text
    longs = [part for part in axis.parts if isinstance(part, Counted) and len(part) > _MOST_COMPARED]
    listed = [text for part in axis.parts if isinstance(part, Listed) for text in part.values]
    for part in longs:
        for text in listed:
            found = _among(part, text, meaning)
            if found is not None and found != text:
                return found, text
    return None


def _among(part: Counted, text: str, meaning: Meaning) -> str | None:
    """The value of a long range that is the same as `text`; ranges ascend."""
    wanted = _read(meaning, text)
    low, high = 0, len(part)
    while isinstance(wanted, (int, float)) and low < high:
        middle = (low + high) // 2
        found = _read(meaning, part[middle])
        if found == wanted:
            return part[middle]
        if not isinstance(found, (int, float)):
            return None
        low, high = (middle + 1, high) if found < wanted else (low, middle)
    return None


def _read(meaning: Meaning, text: str) -> Hashable | None:
    """A text as it is read; None where it cannot be."""
    try:
        read = meaning(text)
    except KernbenchError:
        return None
    return read if isinstance(read, Hashable) else None
