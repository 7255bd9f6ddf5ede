"""The command line and the npu: folders of kernels, chips, and settings of chips."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernbench.cli import app
from kernbench.common.errors import KernbenchError

EXAMPLE = Path(__file__).parents[3] / "examples" / "paged_attention"
FOLDER = ("run", "-k", str(EXAMPLE / "kernels"), "-g", str(EXAMPLE / "golden.py"))


def kernbench(*arguments):
    """The command in this process; misuse is raised."""
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    if isinstance(done.exception, KernbenchError):
        raise done.exception
    return done


def test_a_folder_of_kernels_against_a_golden():
    done = kernbench(*FOLDER, "-p", "sim")
    assert done.exit_code == 0, done.output
    assert "1 of 1 right and safe" in done.stdout
    assert "ragged" in done.stdout
    done = kernbench(
        *FOLDER, "-p", "a5sim", "--case", "wide", "--case", "one_sequence", "--set", "chip.tasks.submit=2 us"
    )
    assert done.exit_code == 0, done.output
    assert "2 of 2 right and safe" in done.stdout


def test_a_folder_asked_for_wrongly():
    for arguments, told in (
        ((*FOLDER, "-p", "a2a3"), "cannot be reached from here: a2a3sim"),
        ((*FOLDER, "--case", "none"), "unknown case 'none'; known: one_sequence"),
        ((*FOLDER, "--set", "chip.memory.bandwith=3"), "Did you mean 'memory.bandwidth'?"),
        ((*FOLDER[:3],), "--kernels FOLDER and --golden FILE, both"),
        (("run",), "which bench?"),
    ):
        with pytest.raises(KernbenchError, match=re.escape(told)):
            kernbench(*arguments)


def test_chips_are_machines(tmp_path):
    assert "a2a3: 24 clusters" in kernbench("machine", "list").stdout
    shown = kernbench("machine", "show", "a5").stdout
    assert "chip a5" in shown
    assert "memory.bandwidth" in shown
    file = tmp_path / "mine.toml"
    file.write_text('extends = "a2a3"\nname = "mine"\n[tasks]\nwindow = 16\n')
    good = kernbench("machine", "check", str(file))
    assert good.exit_code == 0
    assert "good; chip mine, 24 clusters" in good.stdout
    file.write_text('extends = "a2a3"\n[tasks]\nwindow = 0\nwindows = 2\n')
    with pytest.raises(KernbenchError, match=r"tasks\.window"):
        kernbench("machine", "check", str(file))
    with pytest.raises(KernbenchError, match="known: large, reference, small, a2a3, a5"):
        kernbench("machine", "show", "a4")
