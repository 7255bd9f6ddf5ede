"""The tutorials are run as they stand: files are written, commands are run, and what they print must be what is shown.

A code block after `<!-- file: NAME -->` is a file, after `<!-- change: NAME -->` the lines that take the place of those
from its first line to its last in that file, after `<!-- add: NAME -->` lines for its end. In a console block each `$`
line is run; lines below it must be found in its output, in order, apart from spaces; a line of dots stands for
anything.
"""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernbench.cli import app

DOCS = Path(__file__).parent.parent / "docs"
TUTORIALS = [*sorted(DOCS.glob("tutorial-*.md")), DOCS / "looking-inside.md"]
_BLOCK = re.compile(r"(?:<!-- (file|change|add): (\S+) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)


def squeezed(text):
    return re.sub(r"[\s│┃━─┏┓┗┛┡┩╇╈┳┴┬┼└┘┌┐]+", " ", text).strip()


def play(text, folder):
    """Everything a tutorial says, done in `folder`; how many commands were run."""
    count = 0
    for what, name, language, body in _BLOCK.findall(text):
        if what == "file":
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
        assert words[0] == "kernbench", line
        result = CliRunner().invoke(app, words[1:], env={"COLUMNS": "160"})
        output = squeezed(result.output + (f" error: {result.exception}" if result.exception else ""))
        place = 0
        for expected in filter(None, map(squeezed, shown.splitlines())):
            if expected == "...":
                continue
            found = output.find(expected, place)
            assert found >= 0, f"$ {line}\nshould print: {expected}\nafter: {output[:place][-200:]}\nprints: {output}"
            place = found + len(expected)
    return len(commands)


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_the_tutorial_does_what_it_says(tutorial, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert play(tutorial.read_text(), tmp_path) >= 4


def test_a_wrong_claim_is_seen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="should print"):
        play("```console\n$ kernbench --version\nkernbench 99\n```\n", tmp_path)
