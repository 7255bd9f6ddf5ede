"""Recipes of the Makefile, with programs that do nothing: a step that fails fails its recipe."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()
# what installs another environment may fail: the tests that need it are left out, and that is said
FORGIVEN = {"test-doors": "python -m pip install"}
# says how it was called, and fails where the call has the text of $FAILING; an environment has these programs, too
PROGRAM = """#!/bin/sh
call="$(basename "$0") $*"
echo "$call" >> calls
case "$call" in *"$FAILING"*) exit 1;; esac
case "$*" in "-m venv "*) mkdir -p "$3" && ln -sfn "$(dirname "$0")" "$3/bin";; esac
"""

pytestmark = [
    pytest.mark.programs,
    pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here"),
]


@pytest.fixture
def make(tmp_path):
    """Runs make in a folder with nothing but the Makefile and such programs: its exit code, and their calls."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "pyproject.toml").touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "ruff", "mypy", "pytest", "mkdocs", "python3"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "h200.jsonl").touch()
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}

    def run(target, failing="nothing"):
        for environment in tmp_path.glob(".venv*"):
            shutil.rmtree(environment)
        (tmp_path / "calls").unlink(missing_ok=True)
        done = subprocess.run(
            ["make", target, f"PYTHON={programs / 'python3'}"],
            cwd=tmp_path,
            env={**variables, "FAILING": failing},
            capture_output=True,
            text=True,
            check=False,
        )
        calls = tmp_path / "calls"
        return done.returncode, calls.read_text().splitlines() if calls.exists() else []

    return run


@pytest.mark.parametrize("target", TARGETS)
def test_a_step_that_fails_fails_its_recipe(make, target):
    code, calls = make(target)
    assert code == 0
    steps = [call for call in dict.fromkeys(calls) if FORGIVEN.get(target, "\n") not in call]
    assert [step for step in steps if make(target, step)[0] == 0] == []


def test_loops_of_all_targets_are_compiled_before_the_tests(make):
    _, calls = make("test")
    compiled = {word for call in calls if "compile_loops.py" in call for word in call.split()[2:]}
    assert compiled == {"mesh", "npu", "ptx"}
    assert calls[-1].startswith("pytest")


def test_what_cannot_be_installed_for_the_doors_is_said(make):
    code, calls = make("test-doors", "pip install")
    assert code == 0
    assert not any(call.startswith("pytest") for call in calls)
