"""kernbench: run attention kernels on accelerators you do not have, and learn whether they are right, safe and fast.

Targets are imported by name when they are first used (`from kernbench import mesh`), so that one runs where
another's dependences are missing.

PYTEST_DONT_REWRITE: under `kernbench exec` this is imported before pytest, which would warn that it comes too late.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernbench.result.run import Run

__version__ = "0.1.0"


def notebook_html(run: "Run") -> str:
    """What a notebook shows for a run. A run asks here: the package knows all rooms, `result` may not know `report`."""
    from kernbench.report.export.notebook import notebook_html as drawn

    return drawn(run)
