"""Rows of values that are packed into one of wide values, and taken out of it: the first is the lowest."""

from dataclasses import dataclass

from kernbench.common.dtypes import Array


@dataclass(frozen=True, slots=True)
class Packs:
    """Several values of `width` bits each as one."""

    width: int

    def __call__(self, *rows: Array) -> None:
        """All rows but the last into the last, which is none of them."""
        *sources, out = rows
        if all(8 * source.itemsize == self.width for source in sources):
            parts = _parts(out, self.width)
            for number, source in enumerate(sources):
                parts[:, number] = source
            return
        total = sources[0].astype(out.dtype)
        for number, source in enumerate(sources[1:], 1):
            total |= source.astype(out.dtype) << out.dtype.type(number * self.width)
        out[...] = total


@dataclass(frozen=True, slots=True)
class Unpacks:
    """One value as several of `width` bits each."""

    width: int

    def __call__(self, source: Array, *targets: Array) -> None:
        """A row into others, none of which it is."""
        if source.ndim and all(8 * target.itemsize == self.width for target in targets):
            parts = _parts(source, self.width)
            for number, target in enumerate(targets):
                target[...] = parts[:, number]
            return
        value = source.copy()
        for number, target in enumerate(targets):
            target[...] = value >> value.dtype.type(number * self.width)


def _parts(row: Array, width: int) -> Array:
    """A row as its parts: one row of the result a lane."""
    return row.view(f"u{width // 8}").reshape(len(row), -1)
