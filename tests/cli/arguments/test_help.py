"""Help that is whole, and what a shell offers after a tab."""

import re
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from kernbench.bench.discovery.new import write_new
from kernbench.cli import app, application


def commands(command, path=()):
    """Every command and group, with the words that lead to it."""
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))


ALL = dict(commands(get_command(app)))


def help_of(path):
    done = CliRunner().invoke(app, [*path, "--help"], prog_name="kernbench", env={"COLUMNS": "80", "TERM": "dumb"})
    assert done.exit_code == 0
    return done.output


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_is_whole(path):
    command, told = ALL[path], help_of(path)
    assert [p.name for p in command.params if not getattr(p, "help", None)] == []
    assert "Examples:\n    $ kernbench " in told
    assert max(map(len, told.splitlines())) <= 80
    for option in (p for p in command.params if p.default not in (None, "", False) and not p.required):
        assert "[default: " in " ".join(told.split()), option.name


@pytest.mark.parametrize("path", [path for path, one in ALL.items() if hasattr(one, "commands")], ids=" ".join)
def test_summaries_are_whole_on_one_line(path):
    listed = help_of(path).split("Commands:\n")[1].split("\n\n")[0].splitlines()
    assert len(listed) == len(ALL[path].commands)
    assert not [line for line in listed if "..." in line or "…" in line]


def test_examples_name_commands_and_options_that_exist():
    for path in ALL:
        for line in re.findall(r"\$ kernbench (.*)", help_of(path)):
            # what follows a bare -- is another program's
            words = line.split(" | ")[0].split(" -- ")[0].split()
            known = next(one for length in (2, 1) if (one := ALL.get(tuple(words[:length]))) is not None)
            options = {name for p in known.params for name in (*p.opts, *p.secondary_opts)}
            assert {word for word in words if word.startswith("-") and word != "-"} <= options, line


def test_the_list_of_commands_imports_none_of_them():
    script = (
        "import sys\n"
        "for name in ('numpy', 'rich', 'kernbench.bench', 'kernbench.result'): sys.modules[name] = None\n"
        "for name in ('mesh', 'npu', 'ptx'): sys.modules[f'kernbench.{name}'] = None\n"
        "sys.argv = ['kernbench', '--help']\n"
        "from kernbench.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=900, check=True)
    listed = [line.split()[0] for line in done.stdout.split("Commands:\n")[1].split("\n\n")[0].splitlines()]
    assert listed == list(ALL[()].commands)


def test_only_commands_that_are_named_are_imported():
    few = get_command(application({"report", "runs.json", "--html"})).commands
    assert few["report"].callback.__name__ == ALL["report",].callback.__name__ == "report"
    assert [name for name, one in few.items() if one.params or getattr(one, "commands", {})] == ["report"]


def offered(line, shell="bash"):
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": line}
    environment = {"_KERNBENCH_COMPLETE": f"complete_{shell}", **asked, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return CliRunner().invoke(app, [], prog_name="kernbench", env=environment).output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_for_shells(shell):
    done = CliRunner().invoke(app, [], prog_name="kernbench", env={"_KERNBENCH_COMPLETE": f"source_{shell}"})
    assert "kernbench" in done.output
    assert f"complete_{shell}" in done.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_offered_benches(shell):
    assert "milestone_gqa_llama70b" in offered("kernbench run mil", shell)
    assert "paged_attention" not in offered("kernbench run mil", shell)


def test_benches_panels_machines_and_parameters_are_offered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = write_new("mesh", "mine", tmp_path)
    file.write_text(
        "raise SystemExit('a tab runs nothing')\n"
        + file.read_text().replace("host, launch)", 'host, launch, panels={"few": {}, "many": {}})')
    )
    (tmp_path / "fast.toml").write_text("")
    assert set(offered("kernbench run ").split()) >= {"paged_attention", "mine.py"}
    assert offered("kernbench run mine.py --panel ").split() == ["few", "many"]
    assert offered("kernbench run milestone_gqa_llama70b -p multi").split() == [
        "multi_user_prefill",
        "multi_user_decode",
    ]
    assert set(offered("kernbench run mine.py --machine ").split()) >= {"reference", "small", "fast.toml"}
    assert "reference" in offered("kernbench machine show ").split()
    assert "n_ranks=" in offered("kernbench run milestone_gqa_llama70b --set n_").split()
    assert "mesh" in offered("kernbench new ").split()
