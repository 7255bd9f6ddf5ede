"""Immediate operands of which only some values are allowed."""

from collections.abc import Callable
from dataclasses import dataclass

from kernbench.ptx.isa.forms.form import Resolved


@dataclass(frozen=True, slots=True)
class Values:
    """A set of integers, and its description."""

    words: str
    holds: Callable[[int], bool]


def _between(low: int, high: int) -> Values:
    return Values(f"{low} to {high}", lambda value: low <= value <= high)


def _one_of(*values: int) -> Values:
    return Values(" or ".join(map(str, values)), lambda value: value in values)


def _multiple(of: int, low: int, high: int) -> Values:
    return Values(
        f"a multiple of {of} from {low} to {high}", lambda value: low <= value <= high and not (value - low) % of
    )


def _power(low: int, high: int) -> Values:
    return Values(
        f"a power of two from {low} to {high}", lambda value: low <= value <= high and not value & (value - 1)
    )


def _whole(least: int, what: str) -> Values:
    return Values(f"{what}, {least} or more", lambda value: value >= least)


_BARRIER = _between(0, 15)
_THREADS = Values("a multiple of the warp's 32 threads", lambda value: value >= 0 and not value % 32)
_BIT_POSITION = _between(0, 255)
_FLAG = _one_of(0, 1)
_SIGN = _one_of(-1, 1)
_SIXTEEN = Values("a multiple of 16 bytes", lambda value: value >= 0 and not value % 16)
# (meaning, operand) -> allowed values
_TAKEN: dict[tuple[str, str], Values] = {
    ("alloca", "alignment"): _power(1, 1 << 23),
    ("bar", "id"): _BARRIER,
    ("bar.red", "id"): _BARRIER,
    ("bar", "count"): _THREADS,
    ("bar.red", "count"): _THREADS,
    ("bfe", "b"): _BIT_POSITION,
    ("bfe", "c"): _BIT_POSITION,
    ("bfi", "c"): _BIT_POSITION,
    ("bfi", "d"): _BIT_POSITION,
    ("cp.async", "size"): _one_of(4, 8, 16),
    ("cp.async", "src_size"): _between(0, 16),
    ("cp.bulk", "size"): _SIXTEEN,
    ("cp.bulk.reduce", "size"): _SIXTEEN,
    ("discard", "size"): _one_of(128),
    ("fence.proxy", "size"): _one_of(128),
    ("mbarrier.arrive", "count"): _whole(1, "a number of arrivals"),
    ("mbarrier.init", "count"): _between(1, (1 << 20) - 1),
    ("setmaxnreg", "count"): _multiple(8, 24, 256),
    ("st.bulk", "size"): _multiple(8, 0, 1 << 24),
    ("st.bulk", "value"): _one_of(0),
    ("tcgen05.alloc", "columns"): _power(32, 512),
    ("tcgen05.dealloc", "columns"): _multiple(32, 0, 512),
    ("tcgen05.mma", "scale_d"): _between(0, 15),
    ("tcgen05.mma.sp", "scale_d"): _between(0, 15),
    ("tensormap.cp_fenceproxy", "size"): _one_of(128),
    ("tensormap.replace", "index"): _between(0, 4),
    **{("wgmma", name): _SIGN for name in ("scale_a", "scale_b")},
    **{("wgmma", name): _FLAG for name in ("trans_a", "trans_b")},
    ("wgmma.wait", "n"): _whole(0, "a number of groups"),
}
# (opcode, operand) -> allowed values, where instructions with the same meaning differ
_OF_INSTRUCTION: dict[tuple[str, str], Values] = {
    ("applypriority", "size"): _one_of(128),
    ("pmevent", "a"): _between(0, 15),
    ("cp", "size"): _multiple(16, 0, (1 << 20) - 16),
}


def _arrivals(resolved: Resolved) -> Values | None:
    """bar.arrive: the number of threads that arrive."""
    counted = Values("a positive multiple of the warp's 32 threads", lambda value: value > 0 and not value % 32)
    return counted if resolved.mods.get("mode") == "arrive" else None


def _masked_event(resolved: Resolved) -> Values | None:
    return _between(0, (1 << 16) - 1) if "mask" in resolved.mods else None


def _parity(resolved: Resolved) -> Values | None:
    return _FLAG if "parity" in resolved.mods else None


def _whole_lines(resolved: Resolved) -> Values | None:
    return _one_of(16) if resolved.mods.get("cop") == "cg" else None


def _sparse(resolved: Resolved) -> Values | None:
    """The lanes of four that hold the metadata: one of them, one of two pairs, or all four."""
    mods = resolved.mods
    if resolved.form.opcode == "wgmma":
        return _one_of(0, 1) if mods["atype"] in ("f16", "bf16", "tf32") else _one_of(0)
    k = int(mods["shape"].partition("k")[2])
    return _one_of(*_SELECTORS[k // _CHUNKS.get(mods["atype"], 4)])


# elements of A that share four bits of metadata, if not four; chunks of a row -> allowed selectors
_CHUNKS = {"tf32": 2, "u4": 8, "s4": 8}
_SELECTORS: dict[int, tuple[int, ...]] = {4: (0, 1, 2, 3), 8: (0, 1), 16: (0,)}


def _field(resolved: Resolved) -> Values | None:
    last = _LAST_OF_FIELD.get(resolved.mods.get("field", ""))
    return None if last is None else _between(0, last)


# fields of a tensor map that are an enumeration -> the last value
_LAST_OF_FIELD = {"elemtype": 15, "interleave_layout": 2, "swizzle_mode": 3, "swizzle_atomicity": 3, "fill_mode": 1}
# allowed values that depend on modifiers; these take precedence over the tables
_BY_MODIFIERS: dict[tuple[str, str], Callable[[Resolved], Values | None]] = {
    ("bar", "count"): _arrivals,
    ("cp.async", "size"): _whole_lines,
    ("mbarrier.wait", "phase"): _parity,
    ("mma.sp", "selector"): _sparse,
    ("nop", "a"): _masked_event,
    ("tensormap.replace", "value"): _field,
    ("wgmma", "selector"): _sparse,
}


def values_of(resolved: Resolved, operand: str) -> Values | None:
    """The allowed values of an immediate operand; None if all are."""
    key = (resolved.meaning, operand)
    decided = _BY_MODIFIERS[key](resolved) if key in _BY_MODIFIERS else None
    return decided or _TAKEN.get(key) or _OF_INSTRUCTION.get((resolved.form.opcode, operand))
