"""Instruction descriptors of tcgen05.mma, and the position of D's rows and columns in tensor memory."""

from dataclasses import dataclass
from functools import cache, lru_cache

_HALF = {0: "f16", 1: "bf16"}
_NARROW = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
# kind -> formats of A and B, depth in elements
_KINDS: dict[str, tuple[dict[int, str], int]] = {
    "kind::f16": (_HALF, 16),
    "kind::tf32": ({2: "tf32"}, 8),
    "kind::f8f6f4": (_NARROW, 32),
    "kind::i8": ({0: "u8", 1: "s8"}, 32),
    "kind::mxf8f6f4": (_NARROW, 32),
    "kind::mxf4": ({1: "b4"}, 64),
    "kind::mxf4nvf4": ({1: "b4"}, 64),
}
_RESULTS = {0: "f16", 1: "f32", 2: "s32"}
# K of 4-bit floats if bit 31 is set, and the targets that support it
_DEEP, DEEP_TARGETS = 96, ("sm_103a", "sm_103f")
# scales per row -> bytes of a word at which they may begin
_FIRST_SCALES = {1: (0, 1, 2, 3), 2: (0, 2), 3: (0, 1, 2, 3), 4: (0,), 6: (0, 2)}
_SCALED_ROWS = {"1": (128,), "2": (128, 256)}
_ROWS = {("1", False): (64, 128), ("1", True): (32, 64, 128), ("2", False): (128, 256)}


@dataclass(frozen=True, slots=True)
class InstructionDescriptor:
    """The fields of a descriptor; `kinds` are the types of D, A and B, `problem` a message about meaningless values."""

    m: int
    n: int
    k: int
    kinds: tuple[str, str, str]
    negated: bool
    transposed: tuple[bool, bool]
    saturates: bool
    # for block-scaled kinds: scale format, and the bytes of a word that hold the scales of A and B
    scale_format: str = ""
    scale_bytes: tuple[int, int] = (0, 0)
    problem: str = ""


@lru_cache(1 << 10)
def instruction_descriptor(
    bits: int, kind: str, group: str, stationary: bool, block: int = 0, deep: bool = False
) -> InstructionDescriptor:
    """Decode the descriptor of an mma of `kind` by `group` ("1" or "2") CTAs; `stationary` is .ws.

    `block` elements share a scale, 0 without scales; `deep`: the target supports K = 96 for 4-bit floats.
    """
    formats, k = _KINDS[kind]
    if "mxf4" in kind and bits >> 31:
        k = _DEEP
    a, b = _formats(bits, kind)
    scaled = "mx" in kind
    d = "f32" if scaled else _RESULTS.get(bits >> 4 & 3, "f32")
    m, n = (bits >> 24 & 31) << 4, (bits >> 17 & 63) << 3
    problem = _problem(bits, kind, formats, m, n, group, stationary)
    if scaled:
        problem = problem or _scale_problem(bits, kind, m, group, k // (block or k), deep)
    return InstructionDescriptor(
        m,
        n,
        k,
        (d, formats.get(a, next(iter(formats.values()))), formats.get(b, next(iter(formats.values())))),
        (bits >> 13 ^ bits >> 14) & 1 == 1,
        (bits >> 15 & 1 == 1, bits >> 16 & 1 == 1),
        not scaled and bits >> 3 & 1 == 1,
        ("ue8m0" if bits >> 23 & 1 else "ue4m3") if scaled else "",
        (bits >> 29 & 3, bits >> 4 & 3) if scaled else (0, 0),
        problem,
    )


def _formats(bits: int, kind: str) -> tuple[int, int]:
    """The formats of A and B; for 4-bit kinds B's has two bits, and the next one, a version of sparsity, is ignored."""
    return bits >> 7 & 7, bits >> 10 & (3 if "mxf4" in kind else 7)


def _problem(bits: int, kind: str, formats: dict[int, str], m: int, n: int, group: str, stationary: bool) -> str:
    if bits >> 2 & 1:
        return "bit 2 says that A is sparse, in an instruction without .sp"
    for name, code in zip("AB", _formats(bits, kind), strict=True):
        if code not in formats:
            return f"format {code} of {name} is not one of {kind}; known are {sorted(formats)}"
    rows = _ROWS[group, stationary]
    if m not in rows:
        return f"M is {m} (bits 24 to 28); here it is one of {', '.join(map(str, rows))}"
    if n not in (allowed := _columns(kind, group, stationary)):
        return f"N is {n} (bits 17 to 22); with M = {m} it is {_said(allowed)}"
    wanted = {"kind::i8": (2,), "kind::f16": (0, 1), "kind::f8f6f4": (0, 1), "kind::tf32": (1,)}.get(kind)
    if wanted is not None and bits >> 4 & 3 not in wanted:
        return f"the format of D (bits 4 and 5) is {bits >> 4 & 3}, which {kind} does not have"
    return ""


def _scale_problem(bits: int, kind: str, m: int, group: str, scales: int, deep: bool) -> str:
    """The message about meaningless values in the descriptor of a block-scaled product."""
    if "mxf4" in kind and bits >> 31 and not deep:
        return f"bit 31 asks for K = {_DEEP}, which {' and '.join(DEEP_TARGETS)} have"
    if m not in _SCALED_ROWS[group]:
        return f"M is {m} (bits 24 to 28); of {kind} it is one of {', '.join(map(str, _SCALED_ROWS[group]))}"
    if "mxf4" in kind and bits >> 15 & 3:
        return f"bits 15 and 16 transpose A or B, which {kind} does not have"
    for name, first in (("A", bits >> 29 & 3), ("B", bits >> 4 & 3)):
        if first not in _FIRST_SCALES[scales]:
            allowed = " or ".join(map(str, _FIRST_SCALES[scales]))
            return f"the scales of {name} begin at byte {first} of a word; {scales} of them begin at byte {allowed}"
    return ""


@cache
def _columns(kind: str, group: str, stationary: bool) -> tuple[int, ...]:
    """The allowed values of N, by the ISA's table of shapes."""
    if stationary:
        return 64, 128, 256
    if kind == "kind::i8":
        return (8, 16, 24, *range(32, 257, 16)) if group == "1" else tuple(range(32, 257, 32))
    step = 8 if group == "1" else 16
    return tuple(range(step, 257, step))


def _said(allowed: tuple[int, ...]) -> str:
    step = allowed[-1] - allowed[-2]
    single = [n for n in allowed if n % step or len(allowed) <= 3]
    many = "" if len(allowed) <= 3 else f"a multiple of {step} up to {allowed[-1]}"
    return " or ".join(filter(None, [", ".join(map(str, single)), many]))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of D or A in tensor memory: the first `lanes` of each of `quarters` (of 32 lanes), and columns of D."""

    quarters: tuple[int, int]
    lanes: tuple[int, int]
    columns: tuple[int, int]

    @property
    def rows(self) -> int:
        """Number of rows in it."""
        return (self.quarters[1] - self.quarters[0]) * (self.lanes[1] - self.lanes[0])


@cache
def parts(m: int, n: int, pair: bool, stationary: bool, base: int) -> tuple[Part, ...]:
    """The parts of D in one CTA; each part holds all of the CTA's rows, and A is in the lanes of each part.

    `base` is the lane of D's address; for a D that takes half of the lanes it selects the half.
    """
    if pair:
        m //= 2
    if m == 128:
        return (Part((0, 4), (0, 32), (0, n)),)
    if m == 64 and not pair and not stationary:
        return (Part((0, 4), (base & 16, (base & 16) + 16), (0, n)),)
    count = 128 // m
    width = 4 // count
    return tuple(
        Part((i * width, (i + 1) * width), (0, 32), (i * n // count, (i + 1) * n // count)) for i in range(count)
    )
