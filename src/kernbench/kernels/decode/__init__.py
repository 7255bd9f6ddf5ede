"""Decode attention for Hopper: one query token per sequence, keys and values in a dense or a paged cache.

from kernbench.kernels.decode import DecodeKernel, DecodeShape, DenseCache, PagedCache
"""

from kernbench.kernels.caches import DenseCache, PagedCache
from kernbench.kernels.decode.arguments import Scales, arguments
from kernbench.kernels.decode.plan import DecodePlan
from kernbench.kernels.decode.shape import DecodeShape
from kernbench.kernels.decode.sm90 import DecodeKernel

__all__ = ["DecodeKernel", "DecodePlan", "DecodeShape", "DenseCache", "PagedCache", "Scales", "arguments"]
