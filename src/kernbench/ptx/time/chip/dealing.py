"""Distribution of a launch's CTAs to SMs: which SMs are simulated, how many each represents, and where clusters run."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.machine import Gpu
from kernbench.ptx.recording.recording import LaunchRecording

Ints = NDArray[np.int64]
# approximate number of warp instructions to simulate, a few seconds; the others are represented by these
BUDGET = 3_000_000
# least number of SM groups
LEAST_GROUPS = 4
# SMs of a TPC, which are in the same GPC
PAIR = 2


@dataclass(frozen=True)
class Deal:
    """The simulated SMs: each SM group represents `weight` SMs that behave identically.

    `order` has the classes of CTAs in launch order, CTAs of a cluster by rank, and `numbers` their numbers in the grid.
    Cluster slot q has its CTA of rank r in CTA slot `seats[q, r]`; all SM groups have the same number of CTA slots.
    """

    weight: Ints
    order: Ints
    numbers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    seats: Ints = field(default_factory=lambda: np.zeros((0, 1), np.int64))

    @property
    def groups(self) -> int:
        """Number of SM groups."""
        return len(self.weight)

    @property
    def size(self) -> int:
        """CTAs of a cluster."""
        return int(self.seats.shape[1])


def gpc_sizes(gpu: Gpu) -> list[int]:
    """The number of SMs of each GPC: pairs of SMs, distributed as evenly as possible.

    Which GPCs have more differs from chip to chip.
    """
    pairs, gpcs = divmod(int(gpu.chip.sms), PAIR)[0], max(int(gpu.chip.gpcs), 1)
    sizes = [PAIR * (pairs // gpcs + (number < pairs % gpcs)) for number in range(gpcs)]
    sizes[0] += int(gpu.chip.sms) % PAIR
    return [size for size in sizes if size]


@dataclass(frozen=True)
class Shape:
    """A set of SMs that clusters share, the number of clusters it holds at once, and the number of such sets."""

    sms: int
    clusters: int
    count: int


def shapes(gpu: Gpu, size: int, held: int) -> list[Shape]:
    """The sets of SMs that clusters of `size` CTAs run on, if an SM holds `held` CTAs.

    CTAs of a cluster are spread over as many SMs as possible. On the remaining SMs of a GPC they share SMs, if a whole
    cluster fits.
    """
    if size == 1:
        return [Shape(1, held, int(gpu.chip.sms))]
    gpcs = gpc_sizes(gpu)
    whole = sum(sms // size for sms in gpcs)
    found = [Shape(size, held, whole)] if whole and held else []
    for rest in sorted({sms % size for sms in gpcs} - {0}):
        clusters = rest * held // size
        if clusters:
            found.append(Shape(rest, clusters, sum(sms % size == rest for sms in gpcs)))
    return found


def resident(gpu: Gpu, size: int, held: int) -> int:
    """Number of clusters that a GPU holds at once."""
    return sum(shape.clusters * shape.count for shape in shapes(gpu, size, held))


def in_clusters(recording: LaunchRecording) -> Ints:
    """The numbers of a grid's CTAs, cluster by cluster, by rank."""
    (x, y, z), (of_x, of_y, of_z) = recording.grid, recording.cluster
    count, size = recording.ctas, of_x * of_y * of_z
    if size == 1 or count != x * y * z:
        return np.arange(count, dtype=np.int64)
    blocks = np.arange(count).reshape(z // of_z, of_z, y // of_y, of_y, x // of_x, of_x)
    return blocks.transpose(0, 2, 4, 1, 3, 5).reshape(-1).astype(np.int64)


def deal(recording: LaunchRecording, instructions: Ints, gpu: Gpu, held: int, budget: int = BUDGET) -> Deal:
    """SM groups for a launch, and the classes of its CTAs in launch order.

    `instructions` of a CTA by class; an SM holds `held` CTAs. There are as many groups as the budget allows, up to one
    for each SM: identical SMs drift apart, because memory serves one before the other.
    """
    size = int(np.prod(recording.cluster))
    numbers = in_clusters(recording)
    order = recording.cta_class.astype(np.int64)[numbers]
    left = len(order) // size
    total = max(int(instructions[order].sum()), 1)
    weight: list[int] = []
    seats: list[tuple[int, int, list[int]]] = []
    for shape in shapes(gpu, size, held):
        used = min(shape.count, left)
        left -= used
        if not used:
            break
        groups = int(np.clip(budget * used // total, min(LEAST_GROUPS, used), used))
        for number in range(groups):
            first = len(weight)
            for one in range(shape.clusters):
                flat = [one * size + rank for rank in range(size)]
                where = [(first + at % shape.sms) * held + at // shape.sms for at in flat]
                seats.append((one, len(seats), where))
            weight += [used // groups + (number < used % groups)] * shape.sms
    filled = [where for _, _, where in sorted(seats)]
    return Deal(np.array(weight, np.int64), order, numbers, np.array(filled, np.int64).reshape(-1, size))
