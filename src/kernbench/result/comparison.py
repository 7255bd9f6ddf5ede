"""The golden's verdict on one run: the error of each output against the reference, and where it is largest."""

from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.result.columns import pack, unpack
from kernbench.result.reading import Data, Reader

# largest number of blocks of an error map, by axis
MOST_ROWS, MOST_COLUMNS = 64, 128


@dataclass(frozen=True)
class ErrorMap:
    """The largest error of each block of an output, in units of the tolerance: above 1 is wrong.

    The output is viewed as a matrix of `shape` whose columns are its last axis; a block has `block` elements, fewer at
    the far edges.
    """

    shape: tuple[int, int]
    block: tuple[int, int]
    values: NDArray[np.float32]

    @classmethod
    def of(cls, excess: Array) -> "ErrorMap | None":
        """The map of errors in units of their tolerance; None if there are no elements."""
        if not excess.size:
            return None
        columns = excess.shape[-1] if excess.ndim else 1
        matrix = excess.reshape(-1, columns)
        rows = len(matrix)
        block = (-(-rows // MOST_ROWS), -(-columns // MOST_COLUMNS))
        by_rows = np.maximum.reduceat(matrix, np.arange(0, rows, block[0]), axis=0)
        by_blocks = np.maximum.reduceat(by_rows, np.arange(0, columns, block[1]), axis=1)
        with np.errstate(over="ignore"):
            return cls((rows, columns), block, by_blocks.astype(np.float32))

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {"shape": list(self.shape), "block": list(self.block), "values": pack(self.values)}

    @classmethod
    def read(cls, data: Reader) -> "ErrorMap":
        """Read what `to_dict` wrote."""
        shape, block = data["shape"].naturals(), data["block"].naturals()
        values = unpack(data["values"].value, data["values"].path)
        if len(shape) != 2 or len(block) != 2 or not prod(block):
            raise MisuseError(f"{data.path}: an error map has two axes and blocks that are not empty")
        if values.shape != tuple(-(-n // b) for n, b in zip(shape, block, strict=True)):
            raise MisuseError(f"{data.path}: {values.shape} is not the blocks of {shape} by {block}")
        return cls((shape[0], shape[1]), (block[0], block[1]), values.astype(np.float32))


@dataclass(frozen=True)
class RankError:
    """The error of one rank's part of an output."""

    rank: int
    max_abs: float
    relative_l2: float
    worst_index: tuple[int, ...]
    wrong: int
    elements: int

    @property
    def passed(self) -> bool:
        """Whether no element of this rank is out of tolerance."""
        return self.wrong == 0


@dataclass(frozen=True)
class Comparison:
    """The comparison of one output with its reference.

    `max_abs`, `max_rel` and `max_ulps` are the largest errors over all elements (ulps of the output's type).
    `worst_index` is the element furthest out of its tolerance, on rank `worst_rank` at `worst_row` of that rank's part.
    `tolerance` is the allowed error there. `reason` is a sentence on why it failed; empty if it passed.
    """

    name: str
    dtype: str
    passed: bool
    max_abs: float
    max_rel: float
    max_ulps: float
    relative_l2: float
    worst_index: tuple[int, ...]
    worst_rank: int | None
    worst_row: int | None
    actual: float
    expected: float
    tolerance: float
    wrong: int
    elements: int
    ranks: tuple[RankError, ...] = ()
    reason: str = ""
    error_map: ErrorMap | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        if self.passed:
            return f"{self.name}: right; max error {self.max_abs:.3g}, relative L2 {self.relative_l2:.3g}"
        return f"{self.name}: WRONG; {self.reason}"

    def to_dict(self) -> dict[str, float | str]:
        """Plain data for JSON."""
        plain = {k: v for k, v in self.__dict__.items() if k not in ("ranks", "error_map")}
        plain["worst_index"] = list(self.worst_index)
        plain["ranks"] = [{**r.__dict__, "worst_index": list(r.worst_index), "passed": r.passed} for r in self.ranks]
        plain["error_map"] = None if self.error_map is None else self.error_map.to_dict()
        return plain


def read_comparison(data: Reader) -> Comparison:
    """Read what `to_dict` wrote."""
    fields: Data = {key: data[key].of(str) for key in ("name", "dtype", "reason")}
    fields |= {key: data[key].number() for key in ("max_abs", "max_rel", "max_ulps", "relative_l2")}
    fields |= {key: data[key].number() for key in ("actual", "expected", "tolerance")}
    fields |= {key: data[key].natural() for key in ("wrong", "elements")}
    fields |= {key: data[key].maybe(Reader.natural) for key in ("worst_rank", "worst_row")}
    return Comparison(
        **fields,
        passed=data["passed"].of(bool),
        worst_index=data["worst_index"].naturals(),
        ranks=tuple(_read_rank(one) for one in data["ranks"]),
        error_map=data["error_map"].maybe(ErrorMap.read),
    )


def _read_rank(data: Reader) -> RankError:
    return RankError(
        data["rank"].natural(),
        data["max_abs"].number(),
        data["relative_l2"].number(),
        data["worst_index"].naturals(),
        data["wrong"].natural(),
        data["elements"].natural(),
    )
