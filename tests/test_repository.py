"""What surrounds the code keeps in step with it: the picture of the packages, paths that documents name, the site, its
pictures, what coverage measures, hooks and workflow.
"""

import re
import tomllib
from pathlib import Path

import pytest
from tests.test_structure import ALLOWED

ROOT = Path(__file__).parent.parent
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
SITE = (ROOT / "mkdocs.yml").read_text()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# bytes of a picture in the documents
LARGEST = 150_000


def test_the_picture_of_the_packages_shows_imports_downwards():
    (picture,) = re.findall(r"<!-- picture: packages -->\n```\n(.*?)```", CONTRIBUTING, re.DOTALL)
    drawn = [re.findall(r"[\w.]+", line[:50]) for line in picture.splitlines()]
    height = {package: number for number, line in enumerate(drawn) for package in line}
    assert height.keys() == ALLOWED.keys(), "draw the package in CONTRIBUTING.md"
    assert [
        (package, other) for package in ALLOWED for other in ALLOWED[package] if height[other] <= height[package]
    ] == []


def test_the_table_of_the_packages_is_the_rule():
    (table,) = re.findall(r"<!-- table: packages -->\n(.*?)\n\n", CONTRIBUTING, re.DOTALL)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    written = {package.strip("`"): set(re.findall(r"`(\w+)`", imports)) for package, _, imports in rows}
    assert written == ALLOWED, "write the package's row in CONTRIBUTING.md"


@pytest.mark.parametrize("text", [CONTRIBUTING, (ROOT / "SECURITY.md").read_text()], ids=["contributing", "security"])
def test_paths_that_a_document_names_exist(text):
    named = re.findall(r"`((?:src|tests|docs|tools|examples|benchmarks)/[\w./-]+)`", text)
    assert [path for path in named if not path.endswith("NAME") and not (ROOT / path).exists()] == []


def test_the_words_of_the_glossary_live_where_it_says():
    rows = [line.strip("|").split("|") for line in GLOSSARY.splitlines() if line.startswith("|")]
    paths = [path for row in rows for path in re.findall(r"`([a-z_]+(?:/\w+)*(?:/|\.py))`", row[-1])]
    paths += [path for row in rows for path in re.findall(r"`([a-z_]+(?:/\w+)+)`", row[-1])]
    assert len(paths) > 80
    assert [path for path in paths if not (ROOT / "src" / "kernbench" / path).exists()] == []


def test_a_word_of_the_glossary_is_explained_once():
    tables = GLOSSARY.partition("## Words with more than one meaning")[0]
    words = [word.strip() for line in re.findall(r"^\| ([^|]+) \|", tables, re.MULTILINE) for word in line.split(",")]
    words = [word for word in words if word != "word"]
    assert len(words) > 60
    assert sorted({word for word in words if words.count(word) > 1}) == []


def test_every_document_is_in_the_navigation_of_the_site():
    listed = set(re.findall(r"^ +- (?:[\w ]+: )?([\w/.-]+\.md)$", SITE.partition("\nnav:")[2], re.MULTILINE))
    documents = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert listed >= documents, "add the page to nav in mkdocs.yml"
    assert {"contributing.md", "changelog.md", "security.md"} >= listed - documents - {"index.md"}


def test_the_site_fetches_nothing():
    assert "font: false" in SITE
    assert re.findall(r"https?:", SITE) == []
    # without this name the offline plugin adds a script of a server
    assert "- javascripts/iframe-worker.js" in SITE
    assert re.findall(r"https?:", (ROOT / "docs" / "javascripts" / "iframe-worker.js").read_text()) == []
    # the theme would fetch what draws these
    assert [path for path in (ROOT / "docs").rglob("*.md") if "```mermaid" in path.read_text()] == []


def test_pictures_are_small_and_shown():
    shown = "".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size <= LARGEST, picture
        assert f"images/{picture.name})" in shown, f"{picture} is shown nowhere"


def test_what_coverage_measures_exists():
    patterns = PYPROJECT["tool"]["coverage"]["run"]["include"]
    found = {pattern: list((ROOT / "src").glob(pattern.removeprefix("*/"))) for pattern in patterns}
    assert [pattern for pattern, files in found.items() if not files] == []


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
