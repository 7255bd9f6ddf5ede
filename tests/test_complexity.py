"""Functions stay simple: the linter's ceilings only fall, and a file that no longer needs its exception loses it."""

import ast
import json
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LINT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
RULES = {"C901", "PLR0911", "PLR0912", "PLR0913", "PLR0915"}
# no ceiling may be higher than these: lower them here when one falls
CEILINGS = {"max-complexity": 10, "max-args": 10, "max-branches": 12, "max-returns": 6, "max-statements": 50}
# files and rules in the list of exceptions, folders aside: lower it when the list gets shorter
EXCEPTIONS = 47
# lines of a function
MOST_LINES = 60


def exceptions() -> set[tuple[str, str]]:
    """Names of files that may hold functions above a ceiling, and the rule."""
    listed = LINT["per-file-ignores"]
    return {(name, rule) for name, rules in listed.items() if "*" not in name for rule in rules if rule in RULES}


def above_a_ceiling() -> list[tuple[str, str]]:
    """Files and rules of all functions of the package that are above a ceiling, exceptions or not."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed")
    settings = [f"lint.mccabe.max-complexity={LINT['mccabe']['max-complexity']}"]
    settings += [f"lint.pylint.{name}={value}" for name, value in LINT["pylint"].items()]
    command = [
        ruff,
        "check",
        "--isolated",
        "--no-cache",
        "--select",
        ",".join(sorted(RULES)),
        "--output-format",
        "json",
    ]
    command += [word for setting in settings for word in ("--config", setting)]
    done = subprocess.run([*command, "src"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return [(Path(found["filename"]).name, found["code"]) for found in json.loads(done.stdout)]


def test_ceilings_only_fall():
    now = {**LINT["mccabe"], **LINT["pylint"]}
    assert {name: value for name, value in now.items() if value > CEILINGS[name]} == {}
    assert now.keys() == CEILINGS.keys()


def test_the_list_of_exceptions_only_gets_shorter():
    assert len(exceptions()) <= EXCEPTIONS


def test_every_exception_is_needed():
    needed = set(above_a_ceiling())
    assert sorted(exceptions() - needed) == [], "take these out of per-file-ignores in pyproject.toml"


def test_rules_are_selected_and_folders_are_excepted_from_few():
    assert set(LINT["select"]) >= RULES
    folders = {name: set(rules) & RULES for name, rules in LINT["per-file-ignores"].items() if "*" in name}
    of_package = {rule for name, rules in folders.items() if fnmatch(name, "src/*") for rule in rules}
    assert of_package == {"PLR0913"}


def _may_be_long(text: str) -> bool:
    """Whether more than 60 lines lie between two functions; to parse all files would take seconds."""
    starts = [number for number, line in enumerate(text.splitlines()) if line.lstrip().startswith("def ")]
    return any(after - before > MOST_LINES for before, after in pairwise([*starts, text.count("\n")]))


def test_functions_have_sixty_lines_at_most():
    found = []
    for path in (path for package in ("src", "benchmarks", "tools") for path in (ROOT / package).rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if _may_be_long(text) else ():
            if isinstance(node, ast.FunctionDef) and (lines := node.end_lineno - node.lineno + 1) > MOST_LINES:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} has {lines}")
    assert found == [], "split them by idea"
