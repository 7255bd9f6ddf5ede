"""Python's collector of cyclic garbage, made to wait while a launch makes many small records that are no garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 500_000


@contextmanager
def rare_collections() -> Iterator[None]:
    """Records die by their counts; inside, cycles are looked for only after many new objects, not every few hundred."""
    usual = gc.get_threshold()
    if usual[0]:
        gc.set_threshold(max(usual[0], _NEW_OBJECTS), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
