"""Where a call of the program wants its results."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Wish(threading.local):
    """Where the running call wants its results: on the device, on the host, or (None) where its inputs are."""

    device: bool | None = None


WISH = Wish()


@contextmanager
def wished(device: bool | None) -> Iterator[None]:
    """Inside, results go to the device, or to the host."""
    before, WISH.device = WISH.device, device
    try:
        yield
    finally:
        WISH.device = before
