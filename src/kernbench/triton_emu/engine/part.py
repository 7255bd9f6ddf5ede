"""A part of `tl`: operations of one kind, on the engine of their PE."""

from kernbench.triton_emu.engine.core import Core

__kernbench_internal__ = True


class Part:
    """What operations use of the engine is at hand under the engine's own names: one look-up less for each use.

    All but the port stay what they are as long as there is a context; the port is looked up, as loops that are watched
    put another in its place.
    """

    def __init__(self, core: Core):
        self._core = core
        (self._sites, self._tables, self._scratch, self._carries_data) = core.lent_state
        (self._fail, self._emit, self._record, self._view, self._read, self._data, self._missing_data) = core.lent_steps
        (self._handle, self._scalar, self._dtype, self._fit) = core.lent_values
        (self._shape, self._whole_numbers, self._axis, self._kind, self._require_room) = core.lent_shapes
