"""Makes Python's cyclic garbage collector run rarely while a launch allocates many small, long-lived records."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEW_OBJECTS = 500_000
# not empty while the collector runs in a launch: when it frees an object is up to Python
collecting: list[str] = []


def _notice(phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        collecting.append(phase)
    else:
        collecting.clear()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Inside, the cyclic collector runs after many new objects; records are freed by their reference counts."""
    usual = gc.get_threshold()
    if usual[0]:
        gc.set_threshold(max(usual[0], _NEW_OBJECTS), *usual[1:])
    gc.callbacks.append(_notice)
    try:
        yield
    finally:
        gc.callbacks.remove(_notice)
        gc.set_threshold(*usual)
