"""Packing several values into one wide value, and unpacking it; the first value is the lowest."""

from dataclasses import dataclass

from kernbench.common.dtypes import Array


@dataclass(frozen=True, slots=True)
class Packs:
    """Packs values of `width` bits each into one."""

    width: int

    def __call__(self, *rows: Array) -> None:
        """Pack all rows but the last into the last, which must not be one of them."""
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
    """Unpacks one value into several of `width` bits each."""

    width: int

    def __call__(self, source: Array, *targets: Array) -> None:
        """Unpack a row into others; it must not be one of them."""
        if source.ndim and all(8 * target.itemsize == self.width for target in targets):
            parts = _parts(source, self.width)
            for number, target in enumerate(targets):
                target[...] = parts[:, number]
            return
        value = source.copy()
        for number, target in enumerate(targets):
            target[...] = value >> value.dtype.type(number * self.width)


def _parts(row: Array, width: int) -> Array:
    """A row viewed as parts: one row of the result for each lane."""
    return row.view(f"u{width // 8}").reshape(len(row), -1)
