"""Python imports this at startup in a program under `kernbench exec`; the program does not notice.

The `sitecustomize` that the program would have had, if any, runs as well.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def _chain() -> None:
    """Run the `sitecustomize` that follows this one on the path."""
    here = Path(__file__).parent
    rest = [entry for entry in sys.path if Path(entry or ".").absolute() != here]
    found = PathFinder.find_spec("sitecustomize", rest)
    if found is None or found.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(found)
    sys.modules["sitecustomize"] = module
    found.loader.exec_module(module)


def _start() -> None:
    """Open the doors that the program will need."""
    # last, after the program's own entries
    root = str(Path(__file__).parents[4])
    if root not in sys.path:
        sys.path.append(root)
    try:
        from kernbench.ptx.doors.opening.environment import start
    except ImportError as problem:
        sys.stderr.write(
            f"kernbench exec: {sys.executable} cannot import kernbench ({problem}), so its launches are not seen: "
            "install kernbench into its environment\n"
        )
        return
    start()


_chain()
_start()
