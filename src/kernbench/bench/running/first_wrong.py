"""Compares checkpoints of kernels with the intermediates of the golden, to find the first that is wrong."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from kernbench import golden
from kernbench.bench.definition.bench import Expected
from kernbench.common.dtypes import Array
from kernbench.common.errors import BenchError, KernbenchError, KernelError, MisuseError, unknown
from kernbench.golden.basis.reference import Reference, plain_reference
from kernbench.result.checkpoint import Checkpoint
from kernbench.result.comparison import Comparison
from kernbench.result.finding import location_dict
from kernbench.result.reading import Data


class Intermediates:
    """Compares checkpoints of one run until one is wrong. `wanted`: name -> array, Reference, Expected, or a function
    of a checkpoint's keys that gives one."""

    def __init__(self, bench: str, wanted: object):
        if not isinstance(wanted, Mapping) or not wanted:
            raise BenchError(f"bench {bench}: intermediates must give name -> array; got {wanted!r}")
        self._wanted = dict(wanted)
        self._right: Counter[str] = Counter()
        self._wrong: Data | None = None
        self._last: Checkpoint | None = None
        # references of whole arrays, by name
        self._known: dict[str, Reference] = {}

    def take(self, point: Checkpoint) -> None:
        """Compare one value; those after the first wrong one are ignored."""
        if self._wrong is not None:
            return
        if point.name not in self._wanted:
            raise KernelError("misuse", unknown("intermediate", point.name, self._wanted), "", point.where)
        found = self._compare(point)
        if found.passed:
            self._right[point.name] += 1
            self._last = point
            return
        self._wrong = {
            **_described(point),
            **_worst(point, found),
            "actual": found.actual,
            "expected": found.expected,
            "tolerance": found.tolerance,
            "wrong": found.wrong,
            "elements": found.elements,
            "reason": found.reason,
        }

    def view(self) -> dict[str, object]:
        """How often each name was right before the first wrong one, that one, and names that never occurred."""
        met = set(self._right) | ({self._wrong["name"]} if self._wrong else set())
        return {
            "right": dict(self._right),
            "last_right": None if self._last is None else _described(self._last),
            "wrong": self._wrong,
            "never": [name for name in self._wanted if name not in met],
        }

    def _compare(self, point: Checkpoint) -> Comparison:
        try:
            expected = self._expected(point)
            array = np.array(point.array)
            if point.positions is not None:
                return self._scattered(point, array, expected)
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

    def _scattered(self, point: Checkpoint, array: Array, expected: Expected) -> Comparison:
        """Elements anywhere in the golden's array, each compared with its own tolerance."""
        reference = self._reference(point, expected)
        return golden.compare(
            array.reshape(-1, 1),
            reference.picked(_inside(point, reference)),
            name=point.name,
            compute_dtype=expected.compute_dtype,
            allowed=expected.allowed,
        )

    def _reference(self, point: Checkpoint, expected: Expected) -> Reference:
        """The golden's whole array; values that are not finite are left out of the scale of others."""
        if isinstance(expected.reference, Reference):
            return expected.reference
        known = None if callable(self._wanted[point.name]) else self._known.get(point.name)
        if known is None:
            values = np.asarray(expected.reference, np.float64)
            sized = plain_reference(np.where(np.isfinite(values), values, 0.0), expected.reduction or 1)
            known = self._known[point.name] = _holding(sized, values)
        return known

    def _expected(self, point: Checkpoint) -> Expected:
        """The golden's value of this part."""
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
            message = f"checkpoint {point.name!r}: the golden's intermediate could not be had: {error}"
            raise KernelError("misuse", message, "", point.where) from None


def _holding(reference: Reference, values: Array) -> Reference:
    """The reference with these values, whatever they are."""
    return Reference(**{**reference.__dict__, "expected": values})


def _inside(point: Checkpoint, reference: Reference) -> tuple[Array, ...]:
    """The indices of a checkpoint's elements, which must exist in the golden's array."""
    indices, shape, count = point.positions or (), reference.shape, np.size(point.array)
    if not indices and np.prod(shape) == 1:
        return tuple(np.zeros(count, np.int64) for _ in shape) or ()
    if len(indices) != len(shape):
        raise MisuseError(f"at has {len(indices)} axes, and the golden's array is {'x'.join(map(str, shape)) or 'one'}")
    for axis, (along, size) in enumerate(zip(indices, shape, strict=True)):
        outside = np.flatnonzero((along < 0) | (along >= size))
        if outside.size:
            element = int(outside[0])
            who = point.owner(element) if point.owner else point.who
            index = tuple(int(each[element]) for each in indices)
            raise MisuseError(f"{who} says it has element {index}; axis {axis} of the golden's array has {size}")
    return indices


def _described(point: Checkpoint) -> dict[str, object]:
    keys = {key: str(value) for key, value in point.keys.items()}
    return {"name": point.name, "who": point.who, "where": location_dict(point.where), "keys": keys}


def _worst(point: Checkpoint, found: Comparison) -> dict[str, object]:
    """The element with the largest error, and its owner."""
    if point.positions is None or not found.worst_index:
        return {"element": list(found.worst_index)}
    number = int(found.worst_index[0])
    who = point.owner(number) if point.owner else point.who
    return {"element": [int(axis[number]) for axis in point.positions], "who": who}
