"""Processes of the tests share the rewriting of assertions: each begins with files of its own, and finds the others'.

pytest rewrites the assertions of each file of tests before it imports it, and keeps what it has made beside the file.
In a fresh checkout nothing is kept, and processes that all begin with the same file rewrite every file of the suite
each: half of the time that they take until their first test.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

# what is used of pytest's own workings; where a release has them no more, each process rewrites all files as ever
_USED = ("_read_pyc", "_rewrite_test", "_write_pyc", "get_cache_dir", "try_makedirs", "assertstate_key", "PYC_TAIL")


def files_of(folder: Path) -> list[Path]:
    """The files whose assertions are rewritten."""
    return sorted([*folder.rglob("test_*.py"), *folder.rglob("conftest.py")])


def rewrite_part(config: pytest.Config, files: Sequence[Path], number: int, count: int) -> list[Path]:
    """Rewrite every `count`th of the files from `number` on, and keep it; those that were not kept."""
    if sys.dont_write_bytecode or not all(hasattr(rewrite, name) for name in _USED):
        return []
    return [path for path in files[number::count] if _rewritten(config, path)]


def _rewritten(config: pytest.Config, path: Path) -> bool:
    """Whether a file had to be rewritten, and could."""
    folder = rewrite.get_cache_dir(path)
    kept = folder / (path.name.removesuffix(".py") + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, kept) is not None or not rewrite.try_makedirs(folder):
        return False
    try:
        source, code = rewrite._rewrite_test(path, config)
    except SyntaxError:
        # whoever imports it says so
        return False
    return bool(rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, kept))
