"""The stages between which a chunked kernel rounds, and the types."""

from dataclasses import dataclass, fields

import numpy as np

from kernbench.common.dtypes import cast, dtype_name
from kernbench.common.errors import MisuseError
from kernbench.golden.basis.arrays import to_float64
from kernbench.golden.basis.reference import Float64


@dataclass(frozen=True)
class Rounding:
    """The element type each stage's result is rounded to before any later stage reads it; None: not rounded.

    `inverse` is Tm = (I + A)^-1, `v_new` is V' = U - W S^T, `p` the masked and decayed scores before P V', and
    `h` the copy of the state that products read: the state passed to the next chunk is never rounded.
    """

    inverse: str | None = None
    u: str | None = None
    w: str | None = None
    v_new: str | None = None
    h: str | None = None
    p: str | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                object.__setattr__(self, field.name, dtype_name(value))

    @classmethod
    def everywhere(cls, dtype: str) -> "Rounding":
        """Every stage rounds to `dtype`."""
        return cls(**{field.name: dtype for field in fields(cls)})

    def __call__(self, stage: str, values: Float64) -> Float64:
        """`values` as the later stages read them."""
        dtype = getattr(self, stage)
        if dtype is None:
            return values
        with np.errstate(over="ignore"):
            rounded = to_float64(cast(values, dtype))
        if np.isinf(rounded).any() and np.isfinite(values).all():
            raise MisuseError(f"{stage} reaches {np.abs(values).max():.6g}, beyond the range of {dtype}: widen it")
        return rounded


EXACT = Rounding()
BF16 = Rounding.everywhere("bf16")
