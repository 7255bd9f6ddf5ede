"""Generators of random numbers of the device: as a program sees them, a seed and an offset, 16 bytes.

The numbers of torch's operators are those of the host's generators, whose states are longer. So a state that a program
takes is remembered under its seed and offset, and brings the same numbers back; one that a program makes (seed, and an
offset that it adds to, for kernels that draw their own numbers) begins a sequence of its own.
"""

from collections import OrderedDict
from typing import Any

import torch

from kernbench.ptx.doors.torch_door.ordinals import require_device

# of states that a program has taken: more are forgotten, and begin another sequence when they are set
_REMEMBERED = 256
_STEP = 4
_MASK = (1 << 64) - 1
_RAW: Any = torch.Generator


class DeviceGenerator(_RAW):  # type: ignore[misc]
    """A generator of the device, over one of the host: its own, or another (`of`)."""

    def __init__(self, of: Any = None):
        self.of = self if of is None else of
        self._states: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._seed, self._offset = self._host_seed(), 0
        self._begun_with, self._at = self._seed, self._host_state()

    def __new__(cls, of: Any = None) -> "DeviceGenerator":
        """One of the host, whatever it says."""
        made: DeviceGenerator = super().__new__(cls)
        return made

    @property
    def device(self) -> torch.device:
        """The device that programs ask for."""
        return torch.device("cuda", 0)

    def manual_seed(self, seed: int) -> "DeviceGenerator":
        """Begin the sequence of a seed."""
        _RAW.manual_seed(self.of, int(seed))
        self._stand(self._host_seed(), 0)
        return self

    def seed(self) -> int:
        """Begin a sequence by chance."""
        _RAW.seed(self.of)
        self._stand(self._host_seed(), 0)
        return self._seed

    def initial_seed(self) -> int:
        """The seed."""
        self._look()
        return self._seed

    def get_offset(self) -> int:
        """How far the sequence has gone: a number that grows."""
        self._look()
        return self._offset

    def set_offset(self, offset: int) -> None:
        """Go elsewhere in the sequence."""
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
        """Go on from a state."""
        data = bytes(state.cpu().tolist())
        if len(data) != 2 * 8:
            raise RuntimeError(f"RNG state is wrong size: {len(data)} bytes where a CUDA generator has 16")
        self._go(*(int.from_bytes(data[first : first + 8], "little") for first in (0, 8)))
        return self

    def clone_state(self) -> "DeviceGenerator":
        """Another that goes on as this one does."""
        other = DeviceGenerator()
        other.graphsafe_set_state(self)
        return other

    def graphsafe_get_state(self) -> "DeviceGenerator":
        """What `graphsafe_set_state` takes."""
        return self.clone_state()

    def graphsafe_set_state(self, other: "DeviceGenerator") -> "DeviceGenerator":
        """Go on as another does."""
        other._look()
        _RAW.set_state(self.of, _RAW.get_state(other.of))
        self._stand(other._seed, other._offset)
        return self

    def _go(self, seed: int, offset: int) -> None:
        known = self._states.get((seed, offset))
        if known is not None:
            _RAW.set_state(self.of, torch.frombuffer(bytearray(known), dtype=torch.uint8))
        else:
            # any mixture of the two will do that is 0 for no offset
            _RAW.manual_seed(self.of, (seed ^ (offset * 0x9E3779B97F4A7C15)) & (_MASK >> 1) if offset else seed)
        self._stand(seed, offset)

    def _look(self) -> None:
        """Notice what was drawn from the host's generator, or that somebody seeded it."""
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
    """`torch.Generator` that takes a device "cuda"."""

    class _Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(metaclass=_Kind):
        """A generator of random numbers."""

        def __new__(cls, device: object = "cpu") -> Any:
            # a bare number means the accelerator
            if not isinstance(device, int) and str(device).partition(":")[0] != "cuda":
                return original(device)
            require_device(device)
            return DeviceGenerator()

    return Generator
