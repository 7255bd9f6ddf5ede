"""The exponentials of a softmax, also for rows without finite scores."""

import numpy as np

from kernbench.golden.basis.reference import Float64


def exponentials(scores: Float64) -> tuple[Float64, Float64]:
    """The maximum of each row of `scores`, and exp(scores - maximum); rows that are empty or all -inf give 0."""
    maximum = scores.max(axis=1, keepdims=True, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        return maximum, np.exp(scores - np.where(np.isneginf(maximum), 0.0, maximum))
