"""Python's collector of cyclic garbage, made to wait while a launch makes many small records that are no garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 500_000
# not empty while the collector is at work in a launch: what dies then does so at a moment that is up to Python
collecting: list[str] = []


def _notice(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        collecting.append(phase)
    else:
        collecting.clear()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Records die by their counts; inside, cycles are looked for only after many new objects, not every few hundred."""
    usual = gc.get_threshold()
    if usual[0]:
        gc.set_threshold(max(usual[0], _NEW_OBJECTS), *usual[1:])
    gc.callbacks.append(_notice)
    try:
        yield
    finally:
        gc.callbacks.remove(_notice)
        gc.set_threshold(*usual)
