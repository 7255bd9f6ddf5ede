"""The documents are run as they stand: files are written, commands are run, and what they print must be what is shown.

A code block after `<!-- file: NAME -->` (or `example:`) is a file, after `<!-- change: NAME -->` the lines that take
the place of those from its first line to its last in that file, after `<!-- add: NAME -->` lines for its end. In a
console block each `$` line is run; lines below it must be found in its output, in order, apart from spaces; a line of
dots stands for anything. Figures that rounding makes (an error, a value found wrong) differ between processors and BLAS
libraries: they are compared by magnitude (`tests/figures.py`). Commands in `sh` blocks take long or need what a test
has not: only their words are checked.
"""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.figures import find_shown
from typer.main import get_command
from typer.testing import CliRunner

from kernbench.cli import app

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PLAYED = [ROOT / "README.md", *sorted(DOCS.glob("tutorial-*.md"))]
PLAYED += [DOCS / f"{name}.md" for name in ("commands", "looking-inside", "testing")]
# what a document needs beyond kernbench
NEEDED = {"tutorial-triton": ("torch", "triton")}
_BLOCK = re.compile(r"(?:<!-- (file|example|change|add): (\S+) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
_COMMAND = re.compile(r"^(?:\$ | *- run: )?(kernbench .*?)(?:  +#.*)?$", re.MULTILINE)


def squeezed(text):
    return re.sub(r"[\s│┃━─┏┓┗┛┡┩╇╈┳┴┬┼└┘┌┐]+", " ", text).strip()


def play(text, folder):
    """Everything a tutorial says, done in `folder`; how many commands were run."""
    count = 0
    for what, name, language, body in _BLOCK.findall(text):
        if what in ("file", "example"):
            (folder / name).write_text(body)
        elif what == "change":
            change(folder / name, body)
        elif what == "add":
            (folder / name).write_text((folder / name).read_text() + "\n\n" + body)
        elif language == "console":
            count += console(body)
    return count


def change(file, body):
    lines, new = file.read_text().splitlines(), body.rstrip("\n").splitlines()
    first = lines.index(new[0])
    last = first + lines[first:].index(new[-1])
    file.write_text("\n".join([*lines[:first], *new, *lines[last + 1 :]]) + "\n")


def console(body):
    commands = re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]
    for command in commands:
        line, _, shown = command.partition("\n")
        line = line.split("   #")[0]
        words = shlex.split(line)
        if words[0] == "nvcc":
            subprocess.run(words, check=True, timeout=900)
            continue
        assert words[0] == "kernbench", line
        result = CliRunner().invoke(app, words[1:], env={"COLUMNS": "160"})
        output = squeezed(result.output + (f" error: {result.exception}" if result.exception else ""))
        place = 0
        for expected in filter(None, map(squeezed, shown.splitlines())):
            if expected == "...":
                continue
            found = find_shown(expected, output, place)
            assert found, f"$ {line}\nshould print: {expected}\nafter: {output[:place][-200:]}\nprints: {output}"
            place = found[1]
    return len(commands)


# nvcc takes long: `make test-doors` runs what it is needed for
LONG = {path: pytest.mark.named for path in PLAYED if "\n$ nvcc " in path.read_text()}


@pytest.mark.parametrize("document", [pytest.param(path, marks=LONG.get(path, ()), id=path.stem) for path in PLAYED])
def test_the_document_does_what_it_says(document, tmp_path, monkeypatch):
    for name in NEEDED.get(document.stem, ()):
        pytest.importorskip(name, reason=f"{name} is not installed: make test-doors installs it")
    if "\n$ nvcc " in document.read_text() and shutil.which("nvcc") is None:
        pytest.skip("nvcc is not on PATH")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert play(document.read_text(), tmp_path) >= 3


def commands():
    """Every command in a shell's block of any document, with the document."""
    for file in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]:
        for _, _, language, body in _BLOCK.findall(file.read_text()):
            if language in ("sh", "console", "yaml"):
                yield from ((file.name, command) for command in _COMMAND.findall(body))


def problem(line, command):
    """Why the command line has no such command, option or value; nothing is run."""
    words = shlex.split(line)[1:]
    context = command.make_context("kernbench", list(words), resilient_parsing=True)
    while hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(context, words)
        if command is None:
            return f"no command {words}"
        group = hasattr(command, "resolve_command")
        try:
            context = command.make_context(name, list(words), parent=context, resilient_parsing=group)
        except Exception as error:
            return str(error)
    return ""


def test_every_command_of_the_documents_is_one():
    command_line = get_command(app)
    found = [(file, line, problem(line, command_line)) for file, line in commands()]
    assert len(found) > 60
    assert [row for row in found if row[2]] == []


@pytest.mark.parametrize("words", ["rum x.py", "run x.py --htlm y", "ptx look x.ptx", "run x.py --seed y", "new mesh"])
def test_a_wrong_command_is_seen(words):
    assert problem(f"kernbench {words}", get_command(app))


def test_a_wrong_claim_is_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="should print"):
        play("```console\n$ kernbench --version\nkernbench 99\n```\n", tmp_path)


def test_an_error_is_compared_by_magnitude(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = "```console\n$ kernbench run my_ring.py\n│ my_ring │ yes │ yes │ {} │ 304 │\n```\n"
    play("```console\n$ kernbench new mesh my_ring\n```\n" + shown.format("1.00e-07"), tmp_path)
    with pytest.raises(AssertionError, match="should print"):
        play(shown.format("1.00e-04"), tmp_path)
