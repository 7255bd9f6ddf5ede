"""The host: distributes tensors to ranks, launches kernels on them, and collects results."""

import inspect
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from operator import index
from typing import Any

import numpy as np

from kernbench import __version__
from kernbench.common.dtypes import DTYPES, ITEMSIZE, Array, as_array, dtype_name
from kernbench.common.errors import MisuseError
from kernbench.common.pe_commands import OPERATIONS, DmaWriteCmd
from kernbench.machine import Machine, load
from kernbench.machine.grid import Grid
from kernbench.mesh import budgets
from kernbench.mesh.collectives import Layout
from kernbench.mesh.dist import Dist, layout_of
from kernbench.mesh.dividing.division import Outcome
from kernbench.mesh.launch import Launch, Setting
from kernbench.mesh.outputs import disagreeing, lost, unwritten
from kernbench.mesh.programs.placement import place_ranks
from kernbench.mesh.programs.tensors import (
    DisagreementError,
    Tensor,
    checked_rows,
    disagreement,
    make_regions,
    make_source,
)
from kernbench.mesh.wiring import Wiring, cycle_order
from kernbench.mesh.wiring import inside as inside_wiring
from kernbench.mesh.wiring import install as install_wiring
from kernbench.result.checkpoint import Taken
from kernbench.result.finding import SourceLocation
from kernbench.result.recording import Recording
from kernbench.result.run import Run, Status
from kernbench.safety.budget import FOLLOWS_WORK, Budget
from kernbench.safety.jobs import wanted_jobs
from kernbench.safety.memory import WINDOW
from kernbench.safety.stopping import Stopper

Rows = Sequence[object]

# names of the checks of a launch; the last three only in launches with data
_ALWAYS_CHECKED = (
    "deadlock",
    "no-neighbour",
    "message-mismatch",
    "message-unreceived",
    "missing-wait",
    "race",
    "out-of-bounds",
    "misaligned",
    "type-confusion",
    "scratch-overflow",
    "over-budget",
    "shape",
    "dtype",
    "value-needed",
    "misuse",
    "kernel-error",
)
# most bytes of all tensors of a host of which copies are kept, in case a launch with data must be run again
MOST_KEPT = 1 << 28
_CHECKED = (*_ALWAYS_CHECKED, "uninitialised-read", "output-unwritten", "output-disagreement")


class Host:
    """`ranks` ranks of `machine` along `rank_axis` (0: the PEs of one cube, 1: the cubes), wired by `install`.

    `machine` is a bundled machine's name, a TOML path or a `Machine`. With `rank_axis=1` every PE of each cube runs the
    kernel; PE 0 has the neighbours and its memory is the rank's. `inside` ("line" or "cycle") also wires the PEs of
    each cube to each other, S and N; `team` has them in that order. With `shapes_only` launches carry no data.
    `schedule` and `budget` are the defaults of launches; without a budget it follows the work of each launch.
    `launches` has the Run of each launch so far.
    """

    def __init__(
        self,
        machine: str | Machine = "reference",
        ranks: int | None = None,
        rank_axis: int = 0,
        install: str | Mapping[int, Mapping[str, int]] = "line",
        inside: str | None = None,
        shapes_only: bool = False,
        schedule: str | int = "canonical",
        budget: Budget | None = None,
    ):
        self.machine = load(machine)
        if rank_axis not in (0, 1):
            raise MisuseError(f"rank_axis {rank_axis!r}: 0 runs over the PEs of a cube, 1 over the cubes")
        self.rank_axis = rank_axis
        self.shapes_only = shapes_only
        self.schedule = schedule
        # whether equal iterations of tl.range are recorded, and computed if there is data, without running each
        self.folds = True
        # set to stop a launch inside a kernel
        self.stop: Stopper | None = None
        # how the last launch was divided over processes
        self.division: Outcome | None = None
        # set to record checkpoints
        self.checkpoints: Taken | None = None
        self.budget = budget or Budget(source=FOLLOWS_WORK)
        # lower bound of the time of each launch, if known; default budgets follow it
        self.limit_ps: int | None = None
        rows, columns = self.machine.cube.pes if rank_axis == 0 else self.machine.package.cubes
        self.ranks = self._check_ranks(rows * columns if ranks is None else ranks, rows * columns)
        self._grid = Grid(rows, columns)
        self.install = install
        self._wiring = install_wiring(install, self.ranks, self._grid)
        self.inside = inside
        self.team: list[int] = [0]
        self._inside: Wiring = {}
        if inside is not None:
            if rank_axis != 1:
                raise MisuseError("inside wires the PEs of a cube for ranks that are cubes: it needs rank_axis=1")
            self._inside, self.team = inside_wiring(inside, self.machine.cube.grid, self._wiring)
        self._placements = place_ranks(self.ranks, None if rank_axis == 0 else self.machine.pes_per_cube)
        self._leaders = [p for p in self._placements if p.leads]
        self._tensors: list[Tensor] = []
        self.launches: list[Run] = []

    @property
    def dist(self) -> Dist:
        """Collectives on this host's tensors."""
        return Dist(self)

    def layout(self) -> Layout:
        """The layout of the ranks, for collectives."""
        slot = self.machine.ipcq.slot
        return layout_of(self.install, self.ranks, self._grid.columns, self.rank_axis, slot)

    @property
    def cycle(self) -> list[int] | None:
        """The ranks along a cycle over links of the grid, as install="cycle" wires them; None if there is none."""
        return cycle_order(self.ranks, self._grid)

    @property
    def grid(self) -> Grid:
        """The grid of the ranks: of a cube's PEs, or of the cubes."""
        return self._grid

    def __repr__(self) -> str:
        return f"<mesh.Host: {self.ranks} ranks on {self.machine.name}, rank_axis {self.rank_axis}>"

    def _check_ranks(self, ranks: int, available: int) -> int:
        if isinstance(ranks, bool) or not isinstance(ranks, (int, np.integer)) or not 1 <= ranks <= available:
            what = "PEs in a cube" if self.rank_axis == 0 else "cubes"
            raise MisuseError(
                f"{ranks!r} ranks on machine '{self.machine.name}' along rank_axis {self.rank_axis}: it has "
                f"{available} {what}; choose 1 to {available}, or a larger machine"
            )
        return int(ranks)

    # Tensors

    def shard(
        self, array: object, axis: int = 0, dtype: str | None = None, name: str = "", rows: Rows | None = None
    ) -> Tensor:
        """Split `array` along `axis`: every rank sees its own slice, all at the same address.

        `rows` lists for each rank its indices along `axis`, in its order, instead of equal slices.
        """
        return self._input(array, axis, dtype, name, rows)

    def replicate(self, array: object, dtype: str | None = None, name: str = "") -> Tensor:
        """Every rank sees all of `array`."""
        return self._input(array, None, dtype, name)

    def empty(
        self, shape: object, dtype: object = "f32", axis: int | None = None, name: str = "", rows: Rows | None = None
    ) -> Tensor:
        """Uninitialised memory for an output, split along `axis` (and `rows`, as in `shard`); None gives every rank its
        own copy of all of it.
        """
        return self._fresh(shape, dtype, axis, name, True, rows)

    def workspace(self, shape: object, dtype: object = "f32", axis: int | None = None, name: str = "") -> Tensor:
        """Like `empty`, for values that are not used after the launch."""
        return self._fresh(shape, dtype, axis, name, False)

    def gather(self, tensor: Tensor) -> Array:
        """The tensor as a NumPy array. Copies must agree within rounding; one of them is returned."""
        self._check_own(tensor)
        parts = [tensor.part(p.number, p.rank) for p in self._leaders]
        if tensor.axis is not None:
            return tensor.whole(parts)
        for placement, part in zip(self._leaders[1:], parts[1:], strict=True):
            gap = disagreement(parts[0], part, tensor.dtype)
            if gap is not None:
                raise DisagreementError(
                    f"copies of '{tensor.name}' differ between rank 0 and rank {placement.rank}: {gap[2]} elements, by "
                    f"up to {gap[0]:.3g} at {list(gap[1])}; the launch's findings say more"
                )
        return parts[0].copy()

    def _input(self, array: object, axis: int | None, dtype: str | None, name: str, rows: Rows | None = None) -> Tensor:
        given = as_array(array)
        if self.shapes_only:
            # for floats only the shape is kept; nothing is copied
            kind = dtype_name(given.dtype if dtype is None else dtype)
            if DTYPES[kind].kind == "float":
                nothing = np.broadcast_to(np.zeros((), DTYPES[kind].numpy), given.shape)
                return self._add(name, given.shape, kind, axis, nothing, False, rows)
        _require_memory(given.shape, dtype_name(given.dtype if dtype is None else dtype))
        source = make_source(given, dtype)
        return self._add(name, source.shape, dtype_name(source.dtype), axis, source, False, rows)

    def _fresh(
        self, shape: Any, dtype: object, axis: int | None, name: str, is_output: bool, rows: Rows | None = None
    ) -> Tensor:
        try:
            sizes = tuple(index(n) for n in ((shape,) if hasattr(shape, "__index__") else shape))
        except TypeError:
            raise MisuseError(f"a shape is a sequence of whole numbers; got {shape!r}") from None
        if any(n < 0 for n in sizes):
            raise MisuseError(f"a shape has no negative sizes; got {sizes}")
        return self._add(name, sizes, dtype_name(dtype), axis, None, is_output, rows)

    def _add(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        axis: int | None,
        source: Array | None,
        is_output: bool,
        rows: Rows | None,
    ) -> Tensor:
        _require_memory(shape, dtype)
        if axis is not None and (not hasattr(axis, "__index__") or not -len(shape) <= axis < len(shape)):
            raise MisuseError(f"axis {axis!r} of a tensor of shape {shape}")
        if rows is not None and axis is None:
            raise MisuseError("rows says how an axis is split: give the axis too")
        number = len(self._tensors) + 1
        tensor = Tensor(
            name or f"tensor {number}",
            number * WINDOW,
            shape,
            dtype,
            None if axis is None else axis % len(shape),
            self.ranks,
            source,
            is_output,
            not self.shapes_only,
            None if rows is None or axis is None else checked_rows(rows, shape[axis], self.ranks),
        )
        self._tensors.append(tensor)
        return tensor

    def _check_own(self, tensor: Tensor) -> None:
        if not any(t is tensor for t in self._tensors):
            raise MisuseError(f"{tensor!r} is no tensor of this host; make it with host.shard, replicate or empty")

    # Launching

    def launch(
        self,
        kernel: Callable[..., object],
        *args: object,
        schedule: str | int | None = None,
        budget: Budget | None = None,
        shapes_only: bool | None = None,
        **kwargs: object,
    ) -> Run:
        """Run `kernel(*args, tl=..., **kwargs)` on every PE; tensors among the arguments pass as addresses.

        A kernel with a parameter `rank_axis` gets the host's unless it is given one. `schedule` changes only the order
        in which programs take turns: "canonical", "reversed" or a seed. With `shapes_only` nothing is computed or
        stored; integer tensors keep their values.
        """
        arguments = self._bind(kernel, args, kwargs)
        schedule = self.schedule if schedule is None else schedule
        if budget is not None and not isinstance(budget, Budget):
            raise MisuseError(f"budget {budget!r}: a Budget(steps=..., seconds=...) is wanted")
        carries_data = not (self.shapes_only if shapes_only is None else shapes_only or self.shapes_only)
        used = [t for t in arguments.values() if isinstance(t, Tensor)]
        setting = self._setting(carries_data, schedule, self._budget(used, carries_data, budget))
        launch, recording = self._launched(setting, kernel, used, args, kwargs)
        if launch.status is Status.FINISHED and carries_data:
            self._check_outputs(used, launch, recording, _location(kernel))
        run = Run(
            self._named([t for t in used if t.is_output]) if carries_data else {},
            launch.log.findings(),
            _CHECKED if carries_data else _ALWAYS_CHECKED,
            launch.status,
            recording,
            metrics={**_metrics(recording), "scratch_peak_bytes": launch.scratch_peak},
            views=self._views(launch, recording),
            origin=self._origin(kernel, arguments, schedule),
        )
        self.launches.append(replace(run))
        return run

    def _launched(
        self, setting: Setting, kernel: Callable[..., object], used: list[Tensor], args: Any, kwargs: Any
    ) -> tuple[Launch, Recording]:
        """Run the kernel; if a loop was wrongly taken to repeat itself, once more with every iteration. Likewise if it
        did not end and recorded too little; if the second run ends (the kernel depends on state kept between launches),
        the first one counts all the same.
        """
        self._begin(used, setting.carries_data)
        launch = Launch(setting, kernel, tuple(map(_address, args)), {k: _address(v) for k, v in kwargs.items()})
        recording = launch.run()
        self.division = launch.division
        if launch.folded_wrongly or launch.recorded_too_little:
            if launch.kept is not None:
                launch.kept.restore()
            every = replace(setting, folds=False, folds_values=False)
            again = self._launched(every, kernel, used, args, kwargs)
            if launch.folded_wrongly or again[0].status is not Status.FINISHED:
                return again
        return launch, recording

    def _begin(self, used: list[Tensor], carries_data: bool) -> None:
        """Allocate every tensor for each rank's leading program, and start tracking writes to outputs."""
        make_regions((tensor, one.number, one.rank) for tensor in used for one in self._leaders)
        for tensor in used:
            for region in tensor.regions.values():
                region.begin(tensor.is_output and carries_data)

    def _budget(self, used: list[Tensor], carries_data: bool, given: Budget | None) -> Budget:
        """The budget of a launch on these tensors: the given one, or what work of this size can need."""
        if self.limit_ps is not None:
            work = budgets.announced(self.limit_ps, self.machine)
        else:
            work = budgets.from_tensors(used)
        return (given or self.budget).for_work(*work, carries_data)

    def _setting(self, carries_data: bool, schedule: str | int, budget: Budget) -> Setting:
        return Setting(
            self.machine,
            self._placements,
            (self.ranks, 1) if self.rank_axis == 0 else (self.machine.pes_per_cube, self.ranks),
            self._wiring,
            self._inside,
            self._grid,
            self._tensors,
            carries_data,
            schedule,
            budget,
            self.stop,
            self.checkpoints,
            # checkpoints would be taken twice by a launch that is run again
            self.folds and not carries_data and self.stop is None and self.checkpoints is None,
            self.folds and carries_data and self.stop is None and self._can_be_kept(),
            wanted_jobs(None),
        )

    def _can_be_kept(self) -> bool:
        """Whether all tensors are small enough to be restored if a launch has to be run again."""
        sizes = (prod(t.shape) * ITEMSIZE[t.dtype] * (self.ranks if t.axis is None else 1) for t in self._tensors)
        return sum(sizes) <= MOST_KEPT

    def _views(self, launch: Launch, recording: Recording) -> dict[str, object]:
        placement = {p.rank: (p.cube, p.pe) for p in self._leaders}
        views: dict[str, object] = {"placement": placement, "mesh": self._picture(recording)}
        if launch.printed:
            views["printf"] = launch.printed
        if launch.status is Status.STOPPED and self.stop is not None and self.stop.met is not None:
            views["stopped"] = self.stop.met.view()
        return views

    def _picture(self, recording: Recording) -> dict[str, object]:
        """The machine as a page draws it: grids, the position of each PE with a program, and the queues between
        them.
        """
        package, cube = self.machine.package.grid, self.machine.cube.grid
        return {
            "package": [package.rows, package.columns],
            "cube": [cube.rows, cube.columns],
            "pes": [[p.cube, p.pe, *package.position(p.cube), *cube.position(p.pe)] for p in self._placements],
            "links": [[*k.sender, k.direction, *k.receiver, k.hops] for k in recording.links],
        }

    def _bind(
        self, kernel: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> dict[str, object]:
        """The kernel's arguments by name; names the tensors after them, and fills in rank_axis."""
        if not callable(kernel):
            raise MisuseError(f"{kernel!r} is no kernel: a plain function with a keyword argument tl is wanted")
        signature = inspect.signature(kernel)
        parameters = signature.parameters
        try:
            if "rank_axis" in parameters and "rank_axis" not in signature.bind_partial(*args).arguments:
                kwargs.setdefault("rank_axis", self.rank_axis)
            bound = signature.bind(*args, tl=None, **kwargs)
        except TypeError as error:
            name = getattr(kernel, "__name__", "kernel")
            if "tl" not in parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                wanted = f"def {name}(..., *, tl)"
                raise MisuseError(f"kernel {name}{signature} does not take the language: write {wanted}") from None
            raise MisuseError(f"arguments do not fit {name}{signature}: {error}") from None
        arguments = _flat({n: v for n, v in bound.arguments.items() if n != "tl"})
        for name, value in arguments.items():
            if hasattr(value, "__array__") and not np.isscalar(value) and np.ndim(value):
                raise MisuseError(
                    f"argument {name} is an array; hand it to host.shard or host.replicate first "
                    "(in a bench: torch.shard, torch.replicate)"
                )
            if isinstance(value, Tensor):
                self._check_own(value)
                if value.name.startswith("tensor "):
                    value.name = name.removesuffix("_ptr")
                    for region in value.regions.values():
                        region.name = value.name
        return arguments

    def _check_outputs(self, used: list[Tensor], launch: Launch, recording: Recording, where: SourceLocation) -> None:
        for tensor in used:
            before = len(launch.log)
            if tensor.is_output:
                unwritten(tensor, self._leaders, launch.log, recording, where)
            if tensor.is_output or tensor.source is not None:
                lost(tensor, self._placements, launch.log, recording, where)
            regions = [tensor.region(p.number, p.rank) for p in self._leaders]
            copies = tensor.axis is None and not tensor.may_differ and (tensor.is_output or tensor.source is not None)
            if copies and len(launch.log) == before and any(r.stored for r in regions):
                disagreeing(tensor, self._leaders, launch.log, recording, where)

    def writer_of(self, run: Run, output: str, index: tuple[int, ...]) -> SourceLocation | None:
        """The kernel's line that last stored an element of an output of a run on this host; None if it is not known."""
        tensor = next((t for t in self._tensors if t.is_output and t.name == output), None)
        if tensor is None or not isinstance(run.recording, Recording):
            return None
        rank, offset = tensor.location(index)
        stream = run.recording.of_rank(rank) or ()
        address = tensor.address + offset * ITEMSIZE[tensor.dtype]
        stores = (one for one in stream if isinstance(one, DmaWriteCmd) and one.addr <= address < one.addr + one.nbytes)
        return next((one.where for one in reversed(list(stores))), None)

    def _named(self, outputs: list[Tensor]) -> dict[str, Array]:
        """Outputs by name; repeated names are numbered."""
        named: dict[str, Array] = {}
        for tensor in outputs:
            name, number = tensor.name, 1
            while name in named:
                number += 1
                name = f"{tensor.name} {number}"
            named[name] = self._merged(tensor)
        return named

    def _merged(self, tensor: Tensor) -> Array:
        parts = [tensor.part(p.number, p.rank) for p in self._leaders]
        return parts[0].copy() if tensor.axis is None else tensor.whole(parts)

    def _origin(
        self, kernel: Callable[..., object], arguments: dict[str, object], schedule: str | int
    ) -> dict[str, object]:
        return {
            "target": "mesh",
            "kernel": getattr(kernel, "__qualname__", repr(kernel)),
            "arguments": {n: _describe(v) for n, v in arguments.items()},
            "machine": self.machine.name,
            "machine_hash": self.machine.hash,
            "ranks": self.ranks,
            "rank_axis": self.rank_axis,
            "schedule": schedule,
            "versions": {"kernbench": __version__, "numpy": np.__version__, "python": platform.python_version()},
        }


def _flat(arguments: dict[str, object]) -> dict[str, object]:
    """The arguments, with those of *args and **kwargs under names of their own."""
    flat: dict[str, object] = {}
    for name, value in arguments.items():
        if isinstance(value, tuple) and any(isinstance(v, Tensor) for v in value):
            flat.update({f"{name}[{i}]": v for i, v in enumerate(value)})
        elif isinstance(value, dict) and any(isinstance(v, Tensor) for v in value.values()):
            flat.update(value)
        else:
            flat[name] = value
    return flat


def _address(value: object) -> object:
    return value.address if isinstance(value, Tensor) else value


def _describe(value: object) -> object:
    if isinstance(value, Tensor):
        return f"{'x'.join(map(str, value.shape))} {value.dtype}"
    return value if isinstance(value, (int, float, str, bool, type(None))) else repr(value)


def _location(kernel: Callable[..., object]) -> SourceLocation:
    code = getattr(inspect.unwrap(kernel), "__code__", None)
    return (
        SourceLocation(code.co_filename, code.co_firstlineno, code.co_name) if code else SourceLocation("<kernel>", 0)
    )


def _require_memory(shape: tuple[int, ...], dtype: str) -> None:
    """Refuse a tensor larger than the address space, before it is made."""
    if prod(shape) * ITEMSIZE[dtype] > WINDOW // 2:
        raise MisuseError(f"a tensor of shape {shape} is larger than any memory: at most {WINDOW // 2} bytes")


def _metrics(recording: Recording) -> dict[str, dict[str, int] | int]:
    """Counts of the functional pass: commands by engine, flops, bytes by kind."""
    types = recording.tables.types
    elements = np.array([prod(shape) for shape, _, _ in types] or [0])
    nbytes = elements * np.array([ITEMSIZE[dtype] for _, dtype, _ in types] or [0])
    inner = np.array([shape[-1] if shape else 1 for shape, _, _ in types] or [0])
    counts = np.zeros(len(OPERATIONS), np.int64)
    totals = dict.fromkeys(("flops", "load_bytes", "store_bytes", "send_bytes"), 0)
    moved = recording.tables.pattern_bytes()
    for stream in recording.streams:
        # copy only the columns needed: rows are many, and columns are strided
        rows, op = stream.rows, stream.rows.column("op").astype(np.int8)
        here = np.bincount(op, minlength=len(OPERATIONS))
        counts += here
        if here[OPERATIONS["dot"].code]:
            dots = np.flatnonzero(op == OPERATIONS["dot"].code)
            of_dots = stream.operand_types(rows.values("a", dots))
            totals["flops"] += int((2 * elements[rows.values("type", dots)] * inner[of_dots]).sum())
        for name in ("load", "store"):
            if here[OPERATIONS[name].code]:
                patterns = rows.values("y", np.flatnonzero(op == OPERATIONS[name].code))
                totals[f"{name}_bytes"] += int(moved[patterns].sum())
        for name in ("send", "send_async"):
            if here[OPERATIONS[name].code]:
                of_sends = stream.operand_types(rows.values("a", np.flatnonzero(op == OPERATIONS[name].code)))
                totals["send_bytes"] += int(nbytes[of_sends].sum())
    engines: dict[str, int] = {}
    for row, count in zip(OPERATIONS.values(), counts.tolist(), strict=True):
        engines[row.engine] = engines.get(row.engine, 0) + count
    return {"commands": recording.commands, "commands_by_engine": engines, **totals}
