"""A run says what was checked: every kind of finding that a target can report stands in its list of checks."""

import ast
from pathlib import Path

import pytest

from kernbench.result import KINDS

SOURCE = Path(__file__).parent.parent / "src" / "kernbench"
# packages of a target -> words among the kinds that mean something else there, or that no check looks for
TARGETS = {
    ("mesh", "triton_emu"): set(),
    ("npu",): set(),
    # shape and dtype are arguments; the others are the answer to a call without meaning
    ("ptx",): {"shape", "dtype", "kernel-error", "misuse"},
}


def kinds(node: ast.AST) -> set[str]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)} & KINDS.keys()


def listed_and_named(files: list[Path]) -> tuple[set[str], set[str]]:
    """Kinds in tuples whose name ends with CHECKED, and kinds anywhere else."""
    listed: set[str] = set()
    named: set[str] = set()
    texts = [file.read_text() for file in files]
    for text in (text for text in texts if any(f'"{kind}"' in text for kind in KINDS)):
        for node in ast.parse(text).body:
            is_list = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "").endswith("CHECKED")
            (listed if is_list else named).update(kinds(node))
    return listed, named


@pytest.mark.parametrize("packages", TARGETS, ids="+".join)
def test_every_kind_that_a_target_reports_is_in_its_list_of_checks(packages):
    listed, named = listed_and_named([file for package in packages for file in (SOURCE / package).rglob("*.py")])
    assert sorted(named - listed - TARGETS[packages]) == [], "add the kind to the target's CHECKED"


def test_a_kind_that_is_not_listed_is_seen(tmp_path):
    planted = tmp_path / "planted.py"
    planted.write_text('CHECKED = ("race",)\n\ndef look(log):\n    log.add("division", "zero")\n    log.add("race")\n')
    assert listed_and_named([planted]) == ({"race"}, {"division", "race"})
