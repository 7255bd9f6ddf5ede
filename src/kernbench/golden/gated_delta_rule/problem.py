"""One problem of the gated delta rule, checked: all arrays in float64, with the chunks of its rows."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernbench.common.errors import MisuseError
from kernbench.golden.basis.arrays import read, to_float64
from kernbench.golden.basis.reference import Float64
from kernbench.golden.gated_delta_rule.chunks import CHUNK, Chunks, make_chunks


@dataclass(frozen=True)
class Rows:
    """Some rows of one sequence, value heads first: q, k [Hv, L, K], v [Hv, L, V], g, beta [Hv, L]."""

    q: Float64
    k: Float64
    v: Float64
    g: Float64
    beta: Float64


@dataclass(frozen=True)
class Problem:
    """Queries and keys are repeated for each value head; `initial_state` is [N, Hv, V, K]."""

    whole: Rows
    initial_state: Float64
    chunks: Chunks
    scale: float

    def rows(self, rows: slice) -> Rows:
        """The given rows of the concatenated sequences."""
        whole = self.whole
        return Rows(*(part[:, rows] for part in (whole.q, whole.k, whole.v, whole.g, whole.beta)))

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Shape [T, Hv, V] of the output."""
        heads, rows, size = self.whole.v.shape
        return rows, heads, size


def make_problem(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    g: ArrayLike,
    beta: ArrayLike,
    *,
    initial_state: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    scale: float | None = None,
    chunk_size: int = CHUNK,
) -> Problem:
    """The problem given by these arguments; raises `MisuseError` if they are invalid."""
    arrays = {name: to_float64(read(name, x)) for name, x in (("q", q), ("k", k), ("v", v), ("g", g), ("beta", beta))}
    shapes = {name: array.shape for name, array in arrays.items()}
    check_heads(shapes, gates=("g", "beta"))
    check_gates(arrays["g"])
    (T, _, K), (_, Hv, V) = shapes["q"], shapes["v"]
    chunks = make_chunks(cu_seqlens, T, chunk_size)
    for name in ("q", "k"):
        arrays[name] = repeat_heads(arrays[name], Hv)
    return Problem(
        whole=Rows(**{name: heads_first(array) for name, array in arrays.items()}),
        initial_state=_initial_state(initial_state, (chunks.sequences, Hv, V, K)),
        chunks=chunks,
        scale=make_scale(scale, K),
    )


def check_heads(shapes: dict[str, tuple[int, ...]], gates: tuple[str, ...]) -> None:
    """Refuse inconsistent shapes: `q` and `k` [T, H, K], then the values [T, Hv, V], and `gates` [T, Hv]."""
    q, k, (name, v) = shapes["q"], shapes["k"], next((n, s) for n, s in shapes.items() if n.startswith("v"))
    given = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    if not len(q) == len(k) == len(v) == 3:
        raise MisuseError(f"q, k and {name} need three axes [row, head, head size]; got {given}")
    if q != k or q[2] == 0:
        raise MisuseError(f"q and k must have the same shape [T, H, K], K at least 1; got {given}")
    if q[0] != v[0] or any(shapes[gate] != v[:2] for gate in gates):
        raise MisuseError(
            f"{name} must have as many rows as q, {' and '.join(gates)} rows and heads of {name}; got {given}"
        )
    if min(q[1], v[1]) == 0 or v[1] % q[1]:
        raise MisuseError(f"the value heads must be a multiple of the query heads, got {v[1]} and {q[1]}: {given}")


def check_gates(g: Float64) -> None:
    """Refuse gates that would make a state grow."""
    if (g > 0.0).any():
        raise MisuseError(
            f"gates are natural logarithms, at most 0; g holds {g[g > 0.0][0]:.6g}: pass the logarithm of the gate"
        )


def make_scale(scale: float | None, K: int) -> float:
    """1 / sqrt(K) unless given."""
    if scale is None:
        return 1.0 / math.sqrt(K)
    if not math.isfinite(scale):
        raise MisuseError(f"scale must be a finite number, got {scale}")
    return float(scale)


def repeat_heads(array: Float64, value_heads: int) -> Float64:
    """Queries or keys [T, H, K] for each value head [T, Hv, K]: value head j has those of head j // (Hv / H)."""
    return np.repeat(array, value_heads // array.shape[1], axis=1)


def heads_first(array: Float64) -> Float64:
    """[T, heads, ...] as [heads, T, ...]."""
    return np.swapaxes(array, 0, 1)


def _initial_state(state: ArrayLike | None, shape: tuple[int, ...]) -> Float64:
    if state is None:
        return np.zeros(shape)
    array = to_float64(read("initial_state", state))
    if array.shape != shape:
        raise MisuseError(f"initial_state must be [sequences, Hv, V, K], here {shape}; got {array.shape}")
    return array
