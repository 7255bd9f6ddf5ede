"""Sweeps on this machine: in this process, or one process for each group at a time."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from kernbench.sweep.executors.base import group_rows
from kernbench.sweep.plan import Group, Plan
from kernbench.sweep.points import Row, run_group


class Here:
    """This process, one point after the other."""

    workers = 1

    def rows(self, plan: Plan, work: list[Group]) -> Iterator[Row]:
        """Each row as it is made."""
        for group in work:
            yield from run_group(plan, group)


class Processes:
    """Several processes; what fits into one part is done in this process."""

    def __init__(self, workers: int):
        self.workers = workers

    def rows(self, plan: Plan, work: list[Group]) -> Iterator[Row]:
        """The rows of each group as it is done."""
        if self.workers <= 1 or len(work) <= 1:
            yield from Here().rows(plan, work)
            return
        with ProcessPoolExecutor(min(self.workers, len(work))) as pool:
            for future in as_completed([pool.submit(group_rows, plan, group) for group in work]):
                yield from future.result()
