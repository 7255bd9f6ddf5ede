"""Comparing the values that kernels name with the intermediates of the golden: which is the first to leave them?"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernbench import golden
from kernbench.bench.definition import Expected
from kernbench.common.errors import BenchError, KernbenchError, KernelError, unknown
from kernbench.result.checkpoint import Checkpoint
from kernbench.result.comparison import Comparison
from kernbench.result.finding import place_dict


class Intermediates:
    """Compares checkpoints of one run until one is wrong. `wanted`: name -> array, Reference, Expected, or a function
    of a checkpoint's keys that gives one."""

    def __init__(self, bench: str, wanted: Any):
        if not isinstance(wanted, Mapping) or not wanted:
            raise BenchError(f"bench {bench}: intermediates must give name -> array; got {wanted!r}")
        self._wanted = dict(wanted)
        self._right: Counter[str] = Counter()
        self._wrong: dict[str, Any] | None = None

    def take(self, point: Checkpoint) -> None:
        """Compare one value; those behind the first wrong one do not matter."""
        if self._wrong is not None:
            return
        if point.name not in self._wanted:
            raise KernelError("misuse", unknown("intermediate", point.name, self._wanted), "", point.where)
        found = self._compare(point)
        if found.passed:
            self._right[point.name] += 1
            return
        self._wrong = {
            "name": point.name,
            "who": point.who,
            "where": place_dict(point.where),
            "keys": {key: str(value) for key, value in point.keys.items()},
            "element": list(found.worst_index),
            "actual": found.actual,
            "expected": found.expected,
            "tolerance": found.tolerance,
            "wrong": found.wrong,
            "elements": found.elements,
            "reason": found.reason,
        }

    def view(self) -> dict[str, Any]:
        """How often each name was right before the first that was wrong, which that is, and names never met."""
        met = set(self._right) | ({self._wrong["name"]} if self._wrong else set())
        return {
            "right": dict(self._right),
            "wrong": self._wrong,
            "never": [name for name in self._wanted if name not in met],
        }

    def _compare(self, point: Checkpoint) -> Comparison:
        try:
            expected = self._expected(point)
            array = np.array(point.array)
            known = np.shape(expected.reference) or getattr(expected.reference, "shape", ())
            if array.size == int(np.prod(known)):
                array = array.reshape(known)
            return golden.compare(
                array,
                expected.reference,
                name=point.name,
                compute_dtype=expected.compute_dtype,
                allowed=expected.allowed,
                reduction=expected.reduction,
            )
        except KernelError:
            raise
        except KernbenchError as error:
            raise KernelError("misuse", f"checkpoint {point.name!r}: {error}", "", point.where) from None

    def _expected(self, point: Checkpoint) -> Expected:
        """What the golden says of this part."""
        wanted, keys = self._wanted[point.name], dict(point.keys)
        try:
            if callable(wanted):
                wanted, keys = wanted(**keys), {}
            expected = wanted if isinstance(wanted, Expected) else Expected(wanted)
            at = keys.pop("at", None)
            if keys:
                raise TypeError(f"{', '.join(keys)}: these keys are for a function; an array takes at=(...)")
            reference = expected.reference
            if at is None:
                return expected
            return Expected(
                np.asarray(reference)[at], None, None, expected.compute_dtype, expected.allowed, expected.reduction
            )
        except (TypeError, IndexError, KeyError, ValueError) as error:
            told = f"checkpoint {point.name!r}: the golden's intermediate could not be had: {error}"
            raise KernelError("misuse", told, "", point.where) from None
