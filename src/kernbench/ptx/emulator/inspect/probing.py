"""Probes: a step before every instruction records where lanes are, and stops the launch on request.

The steps are decoded only for launches with a stopper. The state of one warp is kept: its registers, the shared memory
of its block, and the tensor memory that its block has allocated.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from kernbench.common.dtypes import Array, dtype_of
from kernbench.ptx.emulator.checks.findings.reporter import by_axis
from kernbench.ptx.emulator.inspect.hub import Batch, Window
from kernbench.ptx.emulator.inspect.naming import ELEMENT_TYPES
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.program.program import SharedVariable, Site
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import Step, action
from kernbench.ptx.names.demangling import title
from kernbench.ptx.text.types import TYPES
from kernbench.result.finding import FORMAL, Finding, SourceLocation
from kernbench.safety.stopping import Stopped, StoppedError, Stopper

_SIGNS = {"s": "int", "f": "float"}


def probe_step(site: Site) -> Step:
    """The step before an instruction in a launch that may be stopped."""

    def general(window: Window, mask: Mask | None) -> None:
        probe = window.batch.launch.probe
        assert probe is not None, "only a launch that may be stopped has steps that look"
        probe.visit(window, mask, site)

    return action(general)


class Probe:
    """Follows one launch for a stopper. `sites` are those of the program, `registers` those of each function.

    A source line has many instructions: it is reached at the first of consecutive ones. `shared` has the known element
    types of shared variables, by offset.
    """

    def __init__(
        self,
        stopper: Stopper,
        kernel: str,
        sites: list[Site],
        registers: dict[str, list[Register]],
        shared: Mapping[int, str],
    ):
        self._stopper = stopper
        self._registers = registers
        self._shared = shared
        self._file = f"<ptx {kernel}>"
        self._here: tuple[Window, Mask | None, Site] | None = None
        # by site number: its line in the requested file (0: in another), and whether a line begins there
        self._lines = [self._line(site) for site in sites]
        lines = [(site.function, line) for site, line in zip(sites, self._lines, strict=True)]
        self._begins = [here != before for before, here in zip([None, *lines], lines, strict=False)]

    @property
    def stopped(self) -> Stopped | None:
        """The state of the launch where it was stopped."""
        return self._stopper.met

    def visit(self, window: Window, mask: Mask | None, site: Site) -> None:
        """Lanes are about to run the instruction of a site."""
        stopper = self._stopper
        if stopper.met is not None:
            return
        self._here = (window, mask, site)
        line = self._lines[site.number]
        if line:
            stopper.reached.add(line)
        if line != stopper.wanted.line or not line or not self._begins[site.number]:
            return
        for warp in _warps(window, mask):
            if stopper.counts(line, self._name(window.batch, warp)):
                self._keep(window, mask, site, warp, "this instruction is next")
                raise StoppedError

    def found(self, finding: Finding) -> None:
        """A finding was made: stop if it is about the running instruction."""
        if not self._stopper.at_finding or self._stopper.met is not None or self._here is None:
            return
        if finding.severity == FORMAL and not self._stopper.strict:
            return
        window, mask, site = self._here
        named = [finding.where, *(other.where for other in finding.others)]
        if SourceLocation(self._file, site.line, title(site.function)) in named:
            why = f"{finding.kind}: {finding.message}"
            self._keep(window, mask, site, _warps(window, mask)[0], why)
            raise StoppedError

    def _line(self, site: Site) -> int:
        """The line of a site in the requested file; 0 if it is in another file."""
        wanted = self._stopper.wanted
        if not wanted.file or wanted.file.endswith(".ptx") or wanted.file == self._file:
            return site.line
        lines = ((site.source_file, site.source_line), *site.frames)
        return next((line for file, line in lines if file and self._stopper.matches(file)), 0)

    def _name(self, batch: Batch, warp: int) -> str:
        block = by_axis(int(batch.numbers[warp % batch.ctas]), batch.launch.grid)
        return f"warp {warp // batch.ctas} of block {block}"

    def _keep(self, window: Window, mask: Mask | None, site: Site, warp: int, why: str) -> None:
        batch = window.batch
        registers, about = self._held(batch, site.function, warp)
        active = np.ones(window.size, bool) if mask is None else mask
        arrays = {"active lanes": active[window.lane_numbers // WARP == warp].copy()}
        memories, kinds = _memories(batch, warp % batch.ctas, self._shared)
        arrays |= memories | registers
        about |= kinds
        where = SourceLocation(self._file, site.line, title(site.function), site.text)
        if site.source_line and site.source_file:
            where = SourceLocation(site.source_file, site.source_line, title(site.function))
            why += f" (PTX line {site.line}: {site.text})"
        self._stopper.keep(where, self._name(batch, warp), why, arrays, about)

    def _held(self, batch: Batch, function: str, warp: int) -> tuple[dict[str, Array], dict[str, str]]:
        """The registers of a function in one warp: an element for each lane, of the declared type."""
        arrays: dict[str, Array] = {}
        about: dict[str, str] = {}
        lanes = slice(warp * WARP, (warp + 1) * WARP)
        for register in self._registers.get(function, []):
            name = register.name if register.name not in arrays else f"{register.name} (inner {register.number})"
            rows = batch.banks[register.bank][register.row : register.row + register.rows, lanes]
            arrays[name] = _typed(np.array(rows if register.rows > 1 else rows[0]), register.type)
            about[name] = f".{register.type}"
        return arrays, about


def _warps(window: Window, mask: Mask | None) -> list[int]:
    """The warps of a window that have an active lane."""
    numbers = window.lane_numbers if mask is None else window.lane_numbers[mask]
    return [int(warp) for warp in np.unique(numbers // WARP)]


def _typed(bits: Array, type_name: str) -> Array:
    """Bits as numbers of a register's type; types without a number type stay bits."""
    kind = TYPES[type_name]
    if kind.bits != 8 * bits.dtype.itemsize or type_name[:1] not in _SIGNS or type_name[1:] != str(kind.bits):
        return bits
    return bits.view(f"{_SIGNS[type_name[0]]}{kind.bits}")


def _memories(batch: Batch, cta: int, kinds: Mapping[int, str]) -> tuple[dict[str, Array], dict[str, str]]:
    """A block's shared memory by variable, with element types, and its allocated tensor memory, as words."""
    launch = batch.launch
    start = cta * batch.shared_stride
    memory = batch.port.space("shared").words[1][start : start + launch.shared_bytes]
    parts = {v.name: (v.offset, v.offset + v.size) for v in batch.program.shared if v.size}
    if launch.dynamic_shared:
        static = batch.program.static_shared
        parts[_dynamic_name(batch.program.shared)] = (static, static + launch.dynamic_shared)
    found: dict[str, Array] = {}
    about: dict[str, str] = {}
    for name, (first, last) in parts.items():
        kind = kinds.get(first, "")
        found[f"shared {name}"] = _elements(memory[first:last].copy(), kind)
        about |= {f"shared {name}": f".{kind}"} if kind else {}
    if batch.tensor_memory is not None:
        words = batch.tensor_memory.words[cta].reshape(-1, batch.tensor_memory.words.shape[-1])
        for first, columns, _ in batch.tensor_memory.allocations[cta].values():
            found[f"tensor memory {first} to {first + columns - 1}"] = words[:, first : first + columns].copy()
    return found, about


def _dynamic_name(variables: Sequence[SharedVariable]) -> str:
    """The name of dynamic shared memory: its variable's, if there is one."""
    names = [variable.name for variable in variables if not variable.size]
    return f"dynamic ({names[0]})" if len(names) == 1 else "dynamic"


def _elements(memory: Array, kind: str) -> Array:
    """Bytes as elements of a type, or as words where it is not known."""
    dtype = ELEMENT_TYPES.get(kind, dtype_of(f"uint{kind[1:]}" if kind in ("b16", "b32", "b64") else "uint32"))
    return memory.view(dtype) if len(memory) % dtype.itemsize == 0 else memory
