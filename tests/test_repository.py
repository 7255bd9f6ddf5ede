"""What surrounds the code keeps in step with it: hooks and workflow."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_hooks_and_workflow_use_what_the_project_has():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    extras = " ".join(PYPROJECT["project"]["optional-dependencies"]["dev"])
    assert set(re.findall(r"\.venv/bin/(\w+)", hooks)) == {"ruff", "mypy"}
    assert {"ruff", "mypy"} <= set(re.findall(r"[\w-]+", extras))
    assert "repo: local" in hooks
    assert "http" not in hooks
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    versions = re.findall(r'"(3\.\d+)"', workflow)
    assert {f"Programming Language :: Python :: {version}" for version in versions} <= set(
        PYPROJECT["project"]["classifiers"]
    )
    assert "ubuntu-24.04-arm" in workflow
    assert "run: make test" in workflow
