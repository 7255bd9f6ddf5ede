"""What a kernel tells of its values while it runs: lines it prints, intermediates it names. No commands, no time."""

from typing import Any

from kernbench.common.pe_commands import TensorHandle
from kernbench.safety.printing import lines_of
from kernbench.triton_emu.views import Views

__kernbench_internal__ = True


class Telling(Views):
    """Printing and naming values."""

    def device_print(self, prefix: Any, *args: Any, hex: bool = False) -> None:
        """Show values as they are here, in the lines that the run keeps: no command, no time; shapes without data."""
        values = []
        for value in args:
            handle = value if isinstance(value, TensorHandle) else None
            data = None if handle is None else self._data(handle)
            values.append((value, data, "" if handle is None else f"{handle.dtype} {list(handle.shape)}"))
        place = self._sites.places[self._sites.here()]
        for line in lines_of(str(prefix), values, hex):
            self._port.print(line, place)

    def static_print(self, *values: Any, sep: str = " ") -> None:
        """The same as `device_print` for what is known without running: shapes, types, numbers."""
        self.device_print(sep.join(map(str, values)))

    def checkpoint(self, name: str, value: TensorHandle, **keys: Any) -> None:
        """Call a value by a name of the golden's intermediates, to be compared with it as it is here.

        `keys` tell which part of it this is: `at` an index into the golden's array, others are handed to its function.
        """
        place = self._sites.places[self._sites.here()]
        data = self._read("checkpoint", value)
        if data is not None:
            self._port.checkpoint(name, data, place, keys)
