"""Scalar types of PTX: width, kind, and how a register of the type is kept in NumPy."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One fundamental or packed type.

    `kind` is "b" (untyped bits), "u", "s", "f" (one float), "x" (packed floats or integers) or "p" (predicate). `lane`
    names the element type of a packed type and `lanes` their number; an unpacked type is its own only lane.
    """

    name: str
    bits: int
    kind: str
    lane: str = ""
    lanes: int = 1

    @property
    def nbytes(self) -> int:
        """Bytes in memory; sub-byte types fill one."""
        return max(1, self.bits // 8)

    @property
    def storage(self) -> str:
        """NumPy type of a register row: unsigned bits of the register's width; predicates are bool."""
        return "bool" if self.kind == "p" else f"uint{max(8, min(self.bits, 64))}"


def _types() -> dict[str, ScalarType]:
    rows = [ScalarType(f"b{n}", n, "b") for n in (8, 16, 32, 64, 128)]
    rows += [ScalarType(f"{k}{n}", n, k) for k in "us" for n in (8, 16, 32, 64)]
    rows += [ScalarType(name, bits, "f") for name, bits in _FLOATS.items()]
    rows += [ScalarType(f"{lane}x{n}", bits, "x", lane, n) for lane, n, bits in _PACKED]
    rows.append(ScalarType("pred", 1, "p"))
    return {row.name: row for row in rows}


_FLOATS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f32": 32,
    "f64": 64,
    "e4m3": 8,
    "e5m2": 8,
    "e3m2": 8,
    "e2m3": 8,
    "e2m1": 8,
    "ue8m0": 8,
}
_PACKED = (
    ("f16", 2, 32),
    ("bf16", 2, 32),
    ("f32", 2, 64),
    ("u16", 2, 32),
    ("s16", 2, 32),
    ("e4m3", 2, 16),
    ("e5m2", 2, 16),
    ("e3m2", 2, 16),
    ("e2m3", 2, 16),
    ("e2m1", 2, 8),
    ("ue8m0", 2, 16),
    ("e4m3", 4, 32),
    ("e5m2", 4, 32),
    ("e3m2", 4, 32),
    ("e2m3", 4, 32),
    ("e2m1", 4, 16),
)

TYPES = _types()
