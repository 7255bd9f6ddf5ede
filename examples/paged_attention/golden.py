"""Paged attention of one token for each sequence: cases, inputs, reference and tolerance."""

import ml_dtypes
import numpy as np

RTOL = ATOL = 1e-2
__outputs__ = ["out"]
ALL_CASES = {
    "one_sequence": {"heads": 16, "head_size": 16, "block_size": 16, "context_lens": [33]},
    "whole_pages": {"heads": 16, "head_size": 16, "block_size": 16, "context_lens": [128]},
    "ragged": {"heads": 16, "head_size": 16, "block_size": 16, "context_lens": [33, 64, 0, 15]},
    "wide": {"heads": 8, "head_size": 128, "block_size": 64, "context_lens": [200, 77]},
}
DEFAULT_CASE = "ragged"


def generate_inputs(case):
    """All arguments of the orchestration in order, outputs included."""
    lens = np.array(case["context_lens"], np.int32)
    pages = max(1, -(-int(lens.max()) // case["block_size"]))
    blocks = len(lens) * pages
    cache = (blocks, case["block_size"], case["head_size"])
    return {
        "query": _normal(len(lens), case["heads"], case["head_size"]),
        "key_cache": _normal(*cache),
        "value_cache": _normal(*cache),
        "block_table": np.random.permutation(blocks).reshape(len(lens), pages).astype(np.int32),
        "context_lens": lens,
        "out": np.zeros((len(lens), case["heads"], case["head_size"]), np.float32),
    }


def _normal(*shape):
    return np.random.standard_normal(shape).astype(ml_dtypes.bfloat16)


def compute_golden(tensors, case):
    """softmax(Q K^T / sqrt(D)) V over the gathered pages, in float64; no keys give zeros."""
    for b, length in enumerate(tensors["context_lens"]):
        pages = tensors["block_table"][b]
        keys, values = (
            tensors[name][pages].reshape(-1, case["head_size"])[:length].astype(np.float64)
            for name in ("key_cache", "value_cache")
        )
        if length:
            scores = tensors["query"][b].astype(np.float64) @ keys.T / case["head_size"] ** 0.5
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            tensors["out"][b] = weights @ values / weights.sum(axis=1, keepdims=True)
