"""What a kernel shows of its values while it runs: lines it prints, intermediates it names. No commands, no time."""

import numpy as np

from kernbench.common.pe_commands import TensorHandle
from kernbench.safety.printing import lines_of
from kernbench.triton_emu.engine.part import Part

__kernbench_internal__ = True


class Debugging(Part):
    """Printing and naming values."""

    def device_print(self, prefix: object, *args: object, hex: bool = False) -> None:
        """Show values as they are here, in the lines that the run keeps: no command, no time; shapes without data."""
        values = []
        for value in args:
            handle = value if isinstance(value, TensorHandle) else None
            data = None if handle is None else self._data(handle)
            values.append((value, data, "" if handle is None else f"{handle.dtype} {list(handle.shape)}"))
        location = self._sites.locations[self._sites.here()]
        for line in lines_of(str(prefix), values, hex):
            self._core._port.print(line, location)

    def static_print(self, *values: object, sep: str = " ") -> None:
        """The same as `device_print` for what is known without running: shapes, types, numbers."""
        self.device_print(sep.join(map(str, values)))

    def device_assert(self, cond: object, msg: str = "", mask: object = None) -> None:
        """A finding unless `cond` holds, for all elements where `mask` does; no command, no time."""
        self._hold("device_assert", cond, mask, msg)

    def assume(self, cond: object) -> None:
        """What the kernel relies on; a finding unless it holds."""
        self._hold("assume", cond, None, "")

    def _hold(self, verb: str, cond: object, mask: object, text: str) -> None:
        location = self._sites.locations[self._sites.here(3)]
        reason = f": {text}" if text else ""
        if not isinstance(cond, TensorHandle):
            holds = np.asarray(bool(self._scalar(cond)))
        else:
            data = self._data(cond)
            if data is None:
                return
            holds = data.astype(bool)
        if mask is not None:
            chosen = self._data(mask) if isinstance(mask, TensorHandle) else np.asarray(bool(mask))
            holds = holds | ~np.asarray(True if chosen is None else chosen, bool)
        if holds.all():
            return
        first = [int(i) for i in np.unravel_index(int(np.argmin(holds)), holds.shape)]
        where = f" for {np.count_nonzero(~holds)} of {holds.size} elements, the first at {first}" if holds.ndim else ""
        self._core._port.report(
            "kernel-error", f"{verb} does not hold{where}{reason}", "the condition is the kernel's own", location
        )

    def checkpoint(self, name: str, value: TensorHandle, **keys: object) -> None:
        """Call a value by a name of the golden's intermediates, to be compared with it as it is here.

        `keys` say which part of it this is: `at` an index into the golden's array, others are handed to its function.
        """
        location = self._sites.locations[self._sites.here()]
        data = self._read("checkpoint", value)
        if data is not None:
            self._core._port.checkpoint(name, data, location, keys)
