"""One chunk of the rule, stage by stage, for all value heads at once.

L rows, arrays with the value heads first; G the cumulated gates, Gamma[i, j] = e^(G[i] - G[j]) for j <= i.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.golden.basis.reference import Float64
from kernbench.golden.gated_delta_rule.problem import Rows
from kernbench.golden.gated_delta_rule.rounding import Rounding


@dataclass(frozen=True)
class Chunk:
    """The results of every stage for some rows and the state [Hv, V, K] before them.

    `gates` G [Hv, L], `gamma` [Hv, L, L], `inverse` Tm [Hv, L, L], `u` [Hv, L, V], `w` [Hv, L, K], `h` [Hv, V, K],
    `v_new` [Hv, L, V], `p` [Hv, L, L], `output` [Hv, L, V], `next_state` [Hv, V, K].
    """

    rows: Rows
    state: Float64
    gates: Float64
    gamma: Float64
    inverse: Float64
    u: Float64
    w: Float64
    h: Float64
    v_new: Float64
    p: Float64
    output: Float64
    next_state: Float64


def solve(rows: Rows, state: Float64, scale: float, rounding: Rounding) -> Chunk:
    """All stages of one chunk of at least one row."""
    with np.errstate(invalid="ignore", over="ignore"):
        gates = np.cumsum(rows.g, axis=1)
        gamma = decays(gates)
        strict = np.tril(rows.beta[:, :, None] * (rows.k @ transposed(rows.k)) * gamma, -1)
        inverse = rounding("inverse", unit_lower_inverse(strict))
        u = rounding("u", (inverse * rows.beta[:, None]) @ rows.v)
        w = rounding("w", (inverse * (rows.beta * np.exp(gates))[:, None]) @ rows.k)
        h = rounding("h", state)
        v_new = rounding("v_new", u - w @ transposed(h))
        p = rounding("p", scores(rows.q, rows.k, gamma))
        output = scale * (np.exp(gates)[:, :, None] * (rows.q @ transposed(h)) + p @ v_new)
        next_state = np.exp(gates[:, -1])[:, None, None] * state + transposed(v_new) @ remaining(gates, rows.k)
    return Chunk(rows, state, gates, gamma, inverse, u, w, h, v_new, p, output, next_state)


def decays(gates: Float64) -> Float64:
    """Gamma, with zeros above the diagonal, where the exponential would overflow."""
    rows = gates.shape[1]
    lower = np.tri(rows, dtype=bool)
    return np.exp(np.where(lower, gates[:, :, None] - gates[:, None], -np.inf))


def scores(q: Float64, k: Float64, gamma: Float64) -> Float64:
    """P = lower((q k^T) * Gamma), the diagonal kept."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.tril((q @ transposed(k)) * gamma)


def remaining(gates: Float64, k: Float64) -> Float64:
    """k * e^(G[L] - G): each row's key, decayed to the end of the chunk."""
    return np.exp(gates[:, -1:] - gates)[:, :, None] * k


def unit_lower_inverse(strict: Float64) -> Float64:
    """(I + A)^-1 for A strictly lower triangular: row i is e_i - sum over j < i of A[i, j] row j."""
    inverse = np.zeros_like(strict)
    for i in range(strict.shape[1]):
        inverse[:, i, i] = 1.0
        inverse[:, i, :i] = -(strict[:, i, None, :i] @ inverse[:, :i, :i])[:, 0]
    return inverse


def transposed(array: Float64) -> Float64:
    """The last two axes exchanged."""
    return np.swapaxes(array, -1, -2)
