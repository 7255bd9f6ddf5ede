"""Streams and events of torch for one synchronous GPU, and the current stream of each thread."""

import contextlib
import itertools
import threading
import time

import torch

from kernbench.ptx.doors.driver.local import new_event, new_stream
from kernbench.ptx.doors.torch_door.ordinals import first_argument, require_device

_NUMBERS = itertools.count(1)


class DeviceContext(contextlib.ContextDecorator):
    """`torch.cuda.device` and its kin: there is one device."""

    def __init__(self, *args: object, **kwargs: object):
        device = first_argument(args, kwargs)
        if not isinstance(device, (DeviceContext, torch.Tensor)):
            require_device(device)
        self.idx = 0
        self.prev_idx = 0

    def __enter__(self) -> "DeviceContext":
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class Stream(DeviceContext):
    """A stream: its work is complete when a call returns."""

    def __init__(self, *args: object, **kwargs: object):
        super().__init__(first_argument(args, kwargs))
        self._handle = 0
        self.stream_id = next(_NUMBERS)
        self.device_index = 0
        self.device = torch.device("cuda", 0)
        self.priority = 0
        self._before: list[Stream | None] = []

    @property
    def cuda_stream(self) -> int:
        """The driver's handle, on which others capture and launch; the default stream's without a driver."""
        if not self._handle and self.stream_id:
            self._handle = new_stream()
        return self._handle

    def __enter__(self) -> "Stream":
        self._before.append(_CURRENT.stream)
        _CURRENT.stream = self
        return self

    def __exit__(self, *exc: object) -> None:
        _CURRENT.stream = self._before.pop()

    def query(self) -> bool:
        """Whether all work is complete: always."""
        return True

    def is_capturing(self) -> bool:
        """Whether a graph is being captured."""
        return bool(torch.cuda.is_current_stream_capturing())

    def synchronize(self) -> None:
        """Nothing to wait for, but it is not permitted during a capture."""
        torch.cuda.synchronize()

    def wait_event(self, event: object) -> None:
        """Nothing to wait for."""

    def wait_stream(self, stream: object) -> None:
        """Nothing to wait for."""

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Record an event."""
        event = event or Event()
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)


class ExternalStream(Stream):
    """A stream that the program got from the driver, or from another library."""

    def __init__(self, stream_ptr: int, device: object = None, **kwargs: object):
        super().__init__(device)
        self._handle = self.stream_id = int(stream_ptr)


class _DefaultStream(Stream):
    """The default stream."""

    def __init__(self) -> None:
        super().__init__()
        self.stream_id = 0


class Event:
    """An event; times between two are those of this computer. `launches` is the number of launches before it."""

    def __init__(self, *args: object, **kwargs: object):
        self._at = 0.0
        self.launches = 0
        self._handle = 0
        self.device = torch.device("cuda", 0)

    @property
    def cuda_event(self) -> int:
        """The driver's handle, which others record and wait for; 0 before it is recorded, as in torch."""
        if not self._handle and self._at:
            self._handle = new_event()
        return self._handle

    def record(self, stream: object = None) -> None:
        """Record the current time."""
        self._at = time.perf_counter()

    def elapsed_time(self, end: "Event") -> float:
        """Milliseconds on this computer; never 0, since programs divide by it."""
        return max(1e3 * (end._at - self._at), 1e-3)

    def query(self) -> bool:
        """Whether it is complete: always."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for, but it is not permitted during a capture."""
        torch.cuda.synchronize()

    def wait(self, stream: object = None) -> None:
        """Nothing to wait for."""


class _Current(threading.local):
    """The current stream of a thread."""

    stream: Stream | None = None


_CURRENT, _DEFAULT = _Current(), _DefaultStream()


def default_stream() -> Stream:
    """The default stream."""
    return _DEFAULT


def current_stream() -> Stream:
    """The current stream of this thread."""
    return _CURRENT.stream or _DEFAULT


def set_stream(stream: object) -> None:
    """Set the current stream of this thread; None changes nothing."""
    if isinstance(stream, Stream):
        _CURRENT.stream = stream
