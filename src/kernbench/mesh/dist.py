"""Collectives on a host's tensors, as a bench calls them: `torch.dist.all_reduce(tensor, op="sum")`."""

from typing import TYPE_CHECKING

from kernbench.common.errors import MisuseError
from kernbench.mesh.collectives import GRID, LINE, RING, Layout, choose
from kernbench.mesh.programs.tensors import Tensor
from kernbench.result.run import Run

if TYPE_CHECKING:
    from kernbench.mesh.host import Host

OPERATIONS = ("sum", "max", "min")


class Dist:
    """Each call launches one kernel on all ranks and returns its Run. Tensors are changed in place.

    The tensor must be replicated (`replicate`, `empty` or `workspace` with axis None). all_gather and
    reduce_scatter treat it as equal parts along its first axis, part r belonging to rank r.
    """

    def __init__(self, host: "Host"):
        self._host = host

    def all_reduce(self, tensor: Tensor, op: str = "sum", algorithm: str | None = None) -> Run:
        """Every rank gets the combination of all ranks' tensors."""
        return self._run("all_reduce", tensor, op, 0, algorithm)

    def all_gather(self, tensor: Tensor, algorithm: str | None = None) -> Run:
        """Every rank gets every rank's own part."""
        self._check_parts(tensor)
        return self._run("all_gather", tensor, "sum", 0, algorithm)

    def reduce_scatter(self, tensor: Tensor, op: str = "sum", algorithm: str | None = None) -> Run:
        """Every rank's own part becomes the combination of all ranks' values of it."""
        self._check_parts(tensor)
        tensor.may_differ = True
        return self._run("reduce_scatter", tensor, op, 0, algorithm)

    def broadcast(self, tensor: Tensor, root: int = 0, algorithm: str | None = None) -> Run:
        """Every rank gets the root's tensor."""
        if not 0 <= root < self._host.ranks:
            raise MisuseError(f"root {root}: the ranks are 0 to {self._host.ranks - 1}")
        return self._run("broadcast", tensor, "sum", root, algorithm)

    def barrier(self, algorithm: str | None = None) -> Run:
        """Every rank waits for all others."""
        return self._launch("barrier", 0, 0, "sum", 0, algorithm)

    def _check_parts(self, tensor: Tensor) -> None:
        if not tensor.shape or tensor.shape[0] % self._host.ranks:
            raise MisuseError(f"{tensor!r}: its first axis must be a multiple of the {self._host.ranks} ranks")

    def _run(self, operation: str, tensor: Tensor, op: str, root: int, algorithm: str | None) -> Run:
        if op not in OPERATIONS:
            raise MisuseError(f"op {op!r}: known are {', '.join(OPERATIONS)}")
        if tensor.axis is not None:
            raise MisuseError(f"{tensor!r}: a collective works on a tensor that every rank has whole (axis=None)")
        count = 1
        for n in tensor.shape:
            count *= n
        return self._launch(operation, tensor, count, op, root, algorithm)

    def _launch(
        self, operation: str, tensor: Tensor | int, count: int, op: str, root: int, algorithm: str | None
    ) -> Run:
        layout = self._host.layout()
        chosen = choose(operation, layout.topology, algorithm)
        run = self._host.launch(chosen.kernel, tensor, count, op, root, layout)
        run.origin["algorithm"] = f"{operation} {chosen.name}"
        return run


def full_grid(columns: int, ranks: int) -> bool:
    """Whether the ranks fill whole rows of their grid."""
    return ranks % columns == 0


def layout_of(install: object, ranks: int, columns: int, rank_axis: int, slot: int) -> Layout:
    """The layout of an installed wiring."""
    if install not in (LINE, RING, GRID):
        raise MisuseError("collectives need a standard install: line, ring or grid")
    if install == "grid" and not full_grid(columns, ranks):
        raise MisuseError(f"{ranks} ranks do not fill whole rows of {columns}: collectives on a grid need a full one")
    return Layout(install, ranks, columns, rank_axis, slot)
