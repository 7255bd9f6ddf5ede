"""The documents tell the truth: the README's kernel runs as written, and every kind of finding is explained."""

import importlib.util
import re
from collections import Counter
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from tests.figures import find_shown

from kernbench.bench import find, run_bench
from kernbench.bench.discovery.new import write_new
from kernbench.result import KINDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = (ROOT / "docs" / "commands.md").read_text()


def example(tmp_path):
    """The bench whose kernel the README shows, as `kernbench new` writes it."""
    return write_new("mesh", "my_ring", tmp_path)


def test_the_readme_kernel_is_right_and_safe(tmp_path):
    bench = find(str(example(tmp_path)))
    for settings in ({}, {"S": 100, "n_ranks": 8}, {"n_ranks": 1}):
        run = run_bench(bench, None, settings)
        assert run.right
        assert run.safe


def test_the_readme_finding_is_what_it_says(tmp_path):
    file = example(tmp_path)
    run = run_bench(find(str(file)), None, {"machine.ipcq.depth": 1})
    (finding,) = run.findings
    assert finding.where.line == 25
    assert run.metrics["commands"] == 88
    assert "-> rank 3 -> rank 0" in finding.message
    for line in finding.message.splitlines():
        assert line.replace(str(finding.where), "my_ring.py:25").strip() in README
    assert finding.hint in README


def test_the_wrong_result_of_the_commands_page_is_what_it_says(tmp_path):
    file = example(tmp_path)
    file.write_text(file.read_text().replace("tl.trans(k)", "tl.reshape(k, (d, S))"))
    run = run_bench(find(str(file)))
    assert run.right is False
    assert "rank" in run.comparison[0].reason
    assert find_shown(run.comparison[0].reason, " ".join(COMMANDS.split()))


def guide(name, file):
    """The names that an example of a guide leaves behind."""
    text = (ROOT / "docs" / name).read_text()
    (code,) = re.findall(rf"<!-- example: {re.escape(file)} -->\n```python\n(.*?)```", text, re.DOTALL)
    names = {}
    exec(compile(code, file, "exec"), names)
    return names


def test_the_module_of_the_ptx_guide_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    names = guide("ptx.md", "row_sum.py")
    assert names["run"].safe
    assert names["y"].numpy().tolist() == [1000] * 4
    assert "('n', 'u32', 4)" in capsys.readouterr().out


def test_the_ptx_kernel_of_the_guide_is_right_and_safe(capsys):
    names = guide("ptx-builder.md", "row_softmax.py")
    assert names["run"].safe
    np.testing.assert_allclose(names["y"].numpy().sum(axis=1), 1, rtol=1e-5)
    assert ".visible .entry row_softmax" in capsys.readouterr().out


def test_the_pipelined_kernel_of_the_guide_is_right_and_safe(capsys):
    names = guide("ptx-builder.md", "gemm_tile.py")
    assert names["run"].safe
    wanted = names["a"].astype(float) @ names["b"].astype(float).T
    np.testing.assert_allclose(names["c"].numpy(), wanted, atol=1e-3)
    assert capsys.readouterr().out.startswith("True ")


@pytest.mark.parametrize("file", ["decode.py", "prefill.py"])
def test_the_kernels_of_the_guide_are_safe(file, capsys):
    names = guide("kernels.md", file)
    assert names["run"].safe
    assert np.isfinite(names["out"].numpy().astype(float)).all()
    assert capsys.readouterr().out.endswith("True\n")


def test_every_kind_of_finding_is_documented():
    text = (ROOT / "docs" / "findings.md").read_text()
    assert [kind for kind in KINDS if f"`{kind}`" not in text] == []


def test_links_between_documents_lead_somewhere():
    for file in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", file.read_text()):
            assert target.startswith("http") or (file.parent / target).exists(), f"{file}: {target}"


def test_the_api_reference_is_current():
    spec = importlib.util.spec_from_file_location("api_reference", ROOT / "tools" / "api_reference.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.TARGET.read_text() == tool.reference(), "run: python tools/api_reference.py"


def test_the_index_of_adrs_lists_each_once_in_order_by_its_title():
    folder = ROOT / "docs" / "adr"
    pages = sorted(page for page in folder.glob("*.md") if page.name != "README.md")
    listed = [line for line in (folder / "README.md").read_text().splitlines() if line.startswith("- [")]
    titles = [page.read_text().partition("\n")[0].removeprefix("# ") for page in pages]
    assert listed == [f"- [{title}]({page.name})" for title, page in zip(titles, pages, strict=True)]


def test_the_navigation_lists_each_page_once():
    pages = sorted(page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md"))
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    # the build makes some pages from files beside the folder
    made = {"index.md", "changelog.md", "contributing.md", "security.md"}
    assert sorted(set(listed) - made) == pages
    assert len(listed) == len(set(listed))


def paragraphs(text):
    """The paragraphs and list items of a document, without code and tables."""
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    units = (unit.strip() for unit in re.split(r"\n\s*\n|\n(?=- |\d+\. )", text))
    return [unit for unit in units if len(unit) > 80 and not unit.startswith(("|", "<!--"))]


def twice(text):
    """Neighbouring paragraphs that say nearly the same, as merges of two edits leave them."""
    found = []
    for one, two in pairwise(paragraphs(text)):
        matcher = SequenceMatcher(None, one, two, autojunk=False)
        if matcher.quick_ratio() > 0.75 and matcher.ratio() > 0.7:
            found.append((one[:60], two[:60]))
    return found


# written by programs, from data or docstrings
GENERATED = (
    "api.md",
    "gpu-accuracy.md",
    "gpu-calibration.md",
    "npu-folders.md",
    "npu-operations.md",
    "ptx-instructions.md",
)
WRITTEN = sorted(path for path in (ROOT / "docs").glob("*.md") if path.name not in GENERATED)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_no_paragraph_is_there_twice(path):
    assert twice(path.read_text()) == []


def test_no_entry_of_the_changelog_is_there_twice():
    """Two versions of an entry, which merges leave anywhere in a section, begin alike."""
    text = (ROOT / "CHANGELOG.md").read_text()
    begins = Counter(entry[:60] for entry in paragraphs(text))
    assert [begin for begin, count in begins.items() if count > 1] == []


def test_a_paragraph_that_is_there_twice_is_seen():
    one = "Without a budget the limit of steps follows the work: at least a million, or as many as a PE dispatches"
    other = "Without a budget the steps follow the work: at least a million, and as many as a PE dispatches in all"
    assert twice(f"{one}\n\n{other}\n")
    assert twice(f"- {one}\n- {other}\n")
    assert not twice(f"{one}\n\n```\n{other}\n```\n| {other} |\n")
