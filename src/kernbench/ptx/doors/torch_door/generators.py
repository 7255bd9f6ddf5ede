"""Random generators of the device: for a program their state is a seed and an offset, 16 bytes.

Torch's operators draw from host generators, whose states are longer. So a state that a program reads is remembered
under its seed and offset, and setting it again restores the same numbers. A state that a program constructs (a seed,
and an offset that it advances for kernels that draw their own numbers) begins a sequence of its own.
"""

from collections import OrderedDict
from typing import Any

import torch

from kernbench.ptx.doors.torch_door.ordinals import require_device

# number of remembered states; older ones are forgotten, and begin another sequence when they are set
_REMEMBERED = 256
_STEP = 4
_MASK = (1 << 64) - 1
_RAW: Any = torch.Generator


class DeviceGenerator(_RAW):  # type: ignore[misc]
    """A generator of the device, on top of a host generator: its own, or another one (`of`)."""

    def __init__(self, of: Any = None):
        self.of = self if of is None else of
        self._states: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._seed, self._offset = self._host_seed(), 0
        self._begun_with, self._at = self._seed, self._host_state()

    def __new__(cls, of: Any = None) -> "DeviceGenerator":
        """Create a host generator, whatever device it reports."""
        made: DeviceGenerator = super().__new__(cls)
        return made

    @property
    def device(self) -> torch.device:
        """The device as programs see it."""
        return torch.device("cuda", 0)

    def manual_seed(self, seed: int) -> "DeviceGenerator":
        """Begin the sequence of a seed."""
        _RAW.manual_seed(self.of, int(seed))
        self._stand(self._host_seed(), 0)
        return self

    def seed(self) -> int:
        """Begin a sequence with a random seed."""
        _RAW.seed(self.of)
        self._stand(self._host_seed(), 0)
        return self._seed

    def initial_seed(self) -> int:
        """The seed."""
        self._look()
        return self._seed

    def get_offset(self) -> int:
        """The position in the sequence: a number that grows."""
        self._look()
        return self._offset

    def set_offset(self, offset: int) -> None:
        """Set the position in the sequence."""
        self._go(self.initial_seed(), int(offset))

    def get_state(self) -> torch.Tensor:
        """Seed and offset, as bytes."""
        self._look()
        self._states[self._seed, self._offset] = self._at
        while len(self._states) > _REMEMBERED:
            self._states.popitem(last=False)
        data = b"".join(number.to_bytes(8, "little") for number in (self._seed, self._offset))
        return torch.frombuffer(bytearray(data), dtype=torch.uint8).clone()

    def set_state(self, state: torch.Tensor) -> "DeviceGenerator":
        """Continue from a state."""
        data = bytes(state.cpu().tolist())
        if len(data) != 2 * 8:
            raise RuntimeError(f"RNG state is wrong size: {len(data)} bytes where a CUDA generator has 16")
        self._go(*(int.from_bytes(data[first : first + 8], "little") for first in (0, 8)))
        return self

    def clone_state(self) -> "DeviceGenerator":
        """A generator that continues as this one does."""
        other = DeviceGenerator()
        other.graphsafe_set_state(self)
        return other

    def graphsafe_get_state(self) -> "DeviceGenerator":
        """The argument of `graphsafe_set_state`."""
        return self.clone_state()

    def graphsafe_set_state(self, other: "DeviceGenerator") -> "DeviceGenerator":
        """Continue as another generator does."""
        other._look()
        _RAW.set_state(self.of, _RAW.get_state(other.of))
        self._stand(other._seed, other._offset)
        return self

    def _go(self, seed: int, offset: int) -> None:
        known = self._states.get((seed, offset))
        if known is not None:
            _RAW.set_state(self.of, torch.frombuffer(bytearray(known), dtype=torch.uint8))
        else:
            # any mix of the two that leaves the seed unchanged for offset 0
            _RAW.manual_seed(self.of, (seed ^ (offset * 0x9E3779B97F4A7C15)) & (_MASK >> 1) if offset else seed)
        self._stand(seed, offset)

    def _look(self) -> None:
        """Detect numbers drawn from the host's generator, or that it was seeded."""
        if self._host_seed() != self._begun_with:
            self._stand(self._host_seed(), 0)
        elif (at := self._host_state()) != self._at:
            self._offset, self._at = self._offset + _STEP, at

    def _stand(self, seed: int, offset: int) -> None:
        self._seed, self._offset = seed & _MASK, offset
        self._begun_with, self._at = self._host_seed(), self._host_state()

    def _host_seed(self) -> int:
        return int(_RAW.initial_seed(self.of))

    def _host_state(self) -> bytes:
        state: bytes = _RAW.get_state(self.of).numpy().tobytes()
        return state


def generators(original: Any) -> type:
    """`torch.Generator` that accepts a device "cuda"."""

    class _Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(metaclass=_Kind):
        """A generator of random numbers."""

        def __new__(cls, device: object = "cpu") -> Any:
            # an integer means the accelerator
            if not isinstance(device, int) and str(device).partition(":")[0] != "cuda":
                return original(device)
            require_device(device)
            return DeviceGenerator()

    return Generator
