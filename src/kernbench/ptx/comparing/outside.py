"""The environment of a program without `kernbench exec`, for a process that needs the real GPU."""

import os
from pathlib import Path

_LISTS = {"LD_LIBRARY_PATH": os.pathsep, "LD_PRELOAD": " ", "PYTHONPATH": os.pathsep}
_HOOK = Path(__file__).parents[1] / "doors" / "hook"
# our driver library
_LIBRARY = "libcuda.so.1"


def outside_environment() -> dict[str, str]:
    """The process's environment without our driver library, hook and options."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KERNBENCH_")}
    for name, separator in _LISTS.items():
        if name in kept:
            words = [word for word in kept[name].split(separator) if word and not _ours(Path(word))]
            kept[name] = separator.join(words)
            if not words:
                del kept[name]
    return kept


def _ours(path: Path) -> bool:
    if path == _HOOK:
        return True
    # the layout of `library_folder`
    folder = path.parent if path.name == _LIBRARY else path
    return folder.parent.name == "driver" and folder.parent.parent.name == "kernbench" and (folder / _LIBRARY).exists()
