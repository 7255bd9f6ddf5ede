"""Prints how a program's launches compare with the same launches on another device (`kernbench exec --compare`)."""

from typing import TypedDict

from rich.console import Console
from rich.table import Table

from kernbench.ptx.comparing.verdicts import IDENTICAL, OUTCOMES
from kernbench.ptx.doors.summary import SessionSummary


class Difference(TypedDict):
    """An array that differs, as stored in the records of a session."""

    name: str
    dtype: str
    elements: int
    differ: int
    first: int
    ours: str
    theirs: str


class Agreement(TypedDict):
    """The comparison of one launch, as stored in the records of a session."""

    outcome: str
    differences: list[Difference]
    reason: str


def show_agreement(console: Console, summary: SessionSummary, other: str) -> None:
    """Print a table of outcomes by kernel, and details of each kernel's first launch of each outcome but identical."""
    table = Table(title=f"compared with {other}: launches", title_justify="left")
    for name in ("kernel", *OUTCOMES):
        table.add_column(name, justify="left" if name == "kernel" else "right", overflow="fold")
    for kernel in summary.kernels:
        counts = kernel.agreement
        table.add_row(kernel.title, *(str(counts.get(outcome, 0)) for outcome in OUTCOMES))
    console.print(table)
    for kernel in summary.kernels:
        shown: dict[str, None] = {}
        for launch in kernel.launches:
            found: Agreement | None = launch.get("agreement")
            if found is not None and found["outcome"] != IDENTICAL and found["outcome"] not in shown:
                shown[found["outcome"]] = None
                head = f"{kernel.title}, launch {launch['number']}: {found['outcome']}"
                console.print(head, highlight=False, markup=False, soft_wrap=True)
                console.print(_reason(found), highlight=False, markup=False, soft_wrap=True)


def _reason(found: Agreement) -> str:
    """The differing arrays of a launch, and the reason for its outcome."""
    arrays = [
        f"  {one['name']}: {one['differ']:,} of {one['elements']:,} elements ({one['dtype']}) differ; first "
        f"[{one['first']}]: {one['ours']} here, {one['theirs']} there"
        for one in found["differences"]
    ]
    return "\n".join([*arrays, *([found["reason"]] if found["reason"] else [])])
