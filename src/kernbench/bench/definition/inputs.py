"""Drawing inputs: normal numbers from a seeded generator, or only their shape where a run carries no data."""

from typing import NoReturn

import numpy as np

from kernbench.common.dtypes import DTYPES, Array


class ShapesOnly:
    """Stands for the generator in a run without data: what it draws has a shape and a type, and takes no memory."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"this run carries no data (shapes only), and its generator draws no {name}: draw inputs with "
            "kernbench.bench.normal(rng, shape, dtype), which gives a shape without data here"
        )


def normal(rng: np.random.Generator | ShapesOnly, shape: tuple[int, ...], dtype: str) -> Array:
    """Normally distributed numbers, rounded to `dtype`; read-only zeros without memory from `ShapesOnly`."""
    numpy_type = DTYPES[dtype].numpy
    if isinstance(rng, ShapesOnly):
        return np.broadcast_to(np.zeros((), numpy_type), shape)
    return rng.standard_normal(shape, np.float32).astype(numpy_type)
