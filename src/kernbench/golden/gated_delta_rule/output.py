"""The last stage alone, O = scale (e^G * (q H^T) + P V'), with what a kernel's rounding errors are relative to.

The kernel that the sizes allow reads q, k, V', H and G as given, sums in f32, rounds P to the compute type before P V'
and the output once. In the terms of `Reference`:

- rounding P moves o by at most u_c scale sum |P| |V'|: this, or |o| where that is larger, is the `energy`
- f32 sums round relative to the products, which cancel: `magnitude` is scale (e^G |q| |H|^T + (|q| |k|^T * Gamma) |V'|)
- an exponent x that is off by a few u_f32 |x| moves e^x by as many parts of it: its products count (1 + |x| / 8) times
- `terms` are the K products of a score and the rows that a row sees
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernbench.common.errors import MisuseError
from kernbench.golden.basis.arrays import read, to_float64
from kernbench.golden.basis.reference import Float64, Reference
from kernbench.golden.gated_delta_rule.chunk import decays, scores, transposed
from kernbench.golden.gated_delta_rule.chunks import CHUNK, Chunks, make_chunks
from kernbench.golden.gated_delta_rule.problem import check_gates, check_heads, heads_first, make_scale, repeat_heads
from kernbench.golden.gated_delta_rule.rounding import EXACT, Rounding

_EXPONENT = 1 / 8
_FULL = ("expected", "magnitude", "energy", "flat_magnitude")
_ROWS = ("terms", "concentration")


def chunk_output(
    q: ArrayLike,
    k: ArrayLike,
    v_new: ArrayLike,
    h: ArrayLike,
    g: ArrayLike,
    *,
    cu_seqlens: ArrayLike | None = None,
    scale: float | None = None,
    chunk_size: int = CHUNK,
    rounding: Rounding = EXACT,
) -> Reference:
    """The output [T, Hv, V] of q, k [T, H, K], v_new [T, Hv, V], h [chunks, Hv, V, K] and g [T, Hv].

    `g` is cumulated in each chunk, `h[c]` the state before chunk c; `scale` is 1 / sqrt(K) by default, `cu_seqlens` one
    sequence. Of `rounding` only `p` is used here: with it the expected values are those of a rounded P. The
    sizes allow for that rounding with and without it.
    """
    arrays = {name: to_float64(read(name, x)) for name, x in (("q", q), ("k", k), ("v_new", v_new), ("g", g))}
    check_heads({name: array.shape for name, array in arrays.items()}, gates=("g",))
    check_gates(arrays["g"])
    (T, _, K), (_, Hv, V) = arrays["q"].shape, arrays["v_new"].shape
    chunks = make_chunks(cu_seqlens, T, chunk_size)
    states = to_float64(read("h", h))
    if states.shape != (chunks.total, Hv, V, K):
        raise MisuseError(f"h must be [chunks, Hv, V, K], here {(chunks.total, Hv, V, K)}; got {states.shape}")
    for name in ("q", "k"):
        arrays[name] = repeat_heads(arrays[name], Hv)
    rows = {name: heads_first(array) for name, array in arrays.items()}
    return _assemble(rows, states, chunks, make_scale(scale, K), rounding)


def _assemble(rows: dict[str, Float64], states: Float64, chunks: Chunks, scale: float, rounding: Rounding) -> Reference:
    Hv, T, V = rows["v_new"].shape
    sizes = {name: np.zeros((T, Hv, V)) for name in _FULL} | {name: np.zeros((T, Hv, 1)) for name in _ROWS}
    for number, state in enumerate(states):
        where = chunks.rows(number)
        q, k, v_new, gates = (rows[name][:, where] for name in ("q", "k", "v_new", "g"))
        part = _Part(q, k, v_new, gates, state, scale, rounding)
        for name, values in part.sizes().items():
            sizes[name][where] = heads_first(values)
    return make_reference(**sizes, head_size=rows["q"].shape[2])


def make_reference(
    *,
    expected: Float64,
    magnitude: Float64,
    energy: Float64,
    flat_magnitude: Float64,
    terms: Float64,
    concentration: Float64,
    head_size: int,
) -> Reference:
    """A `Reference` of sums without a softmax: rounding operands is relative to `energy`, at least |expected|."""
    size = np.abs(expected)
    with np.errstate(invalid="ignore"):
        energy = np.maximum(energy, size)
        deviation = np.sqrt(energy - size) * np.sqrt(energy + size)
    return Reference(
        expected=expected,
        magnitude=magnitude,
        deviation=deviation,
        flat_magnitude=flat_magnitude,
        terms=terms,
        denominator=np.ones_like(terms),
        concentration=concentration,
        score_magnitude=np.zeros_like(terms),
        head_size=head_size,
    )


@dataclass(frozen=True)
class _Part:
    """One chunk: value heads first, queries and keys repeated for each."""

    q: Float64
    k: Float64
    v: Float64
    gates: Float64
    h: Float64
    scale: float
    rounding: Rounding

    def sizes(self) -> dict[str, Float64]:
        with np.errstate(invalid="ignore", over="ignore"):
            gamma = decays(self.gates)
            p = scores(self.q, self.k, gamma)
            carried = np.exp(self.gates)[:, :, None] * (self.q @ transposed(self.h))
            return {
                "expected": self.scale * (carried + self.rounding("p", p) @ self.v),
                "magnitude": abs(self.scale) * self._products(gamma),
                "energy": abs(self.scale) * (np.abs(p) @ np.abs(self.v)),
                "flat_magnitude": abs(self.scale) * np.cumsum(np.abs(self.v), axis=1),
                "terms": self._terms(),
                "concentration": _concentration(p),
            }

    def _products(self, gamma: Float64) -> Float64:
        """The sum of the absolute values of all products behind an element."""
        carried = np.exp(self.gates) * (1 + _EXPONENT * np.abs(self.gates))
        apart = np.abs(self.gates[:, :, None] - self.gates[:, None])
        weights = scores(np.abs(self.q), np.abs(self.k), gamma * (1 + _EXPONENT * apart))
        products: Float64 = carried[:, :, None] * (np.abs(self.q) @ transposed(np.abs(self.h)))
        return products + weights @ np.abs(self.v)

    def _terms(self) -> Float64:
        heads, rows, K = self.q.shape
        return np.broadcast_to((K + np.arange(1.0, rows + 1))[:, None], (heads, rows, 1))


def _concentration(p: Float64) -> Float64:
    """sum p^2 / (sum |p|)^2; 1 in a row of zeros."""
    whole = np.square(np.abs(p).sum(axis=2, keepdims=True))
    squares = np.square(p).sum(axis=2, keepdims=True)
    share: Float64 = np.divide(squares, whole, out=np.ones_like(whole), where=whole > 0.0)
    return share
