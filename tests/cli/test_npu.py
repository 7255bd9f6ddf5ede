"""The command line and the npu: folders of kernels, chips, and settings of chips."""

from pathlib import Path

from tests.cli.test_cli import kernbench

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "paged_attention"
FOLDER = ("run", "-k", str(EXAMPLE / "kernels"), "-g", str(EXAMPLE / "golden.py"))


def test_a_folder_of_kernels_against_a_golden():
    done = kernbench(*FOLDER, "-p", "sim")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 right and safe" in done.stdout
    assert "ragged" in done.stdout
    done = kernbench(
        *FOLDER, "-p", "a5sim", "--case", "wide", "--case", "one_sequence", "--set", "chip.tasks.submit=2 us"
    )
    assert done.returncode == 0, done.stderr
    assert "2 of 2 right and safe" in done.stdout


def test_a_folder_asked_for_wrongly():
    for arguments, told in (
        ((*FOLDER, "-p", "a2a3"), "cannot be reached from here: a2a3sim"),
        ((*FOLDER, "--case", "none"), "unknown case 'none'; known: one_sequence"),
        ((*FOLDER, "--set", "chip.memory.bandwith=3"), "Did you mean 'memory.bandwidth'?"),
        ((*FOLDER[:3],), "--kernels FOLDER and --golden FILE, both"),
        (("run",), "which bench?"),
    ):
        done = kernbench(*arguments)
        assert done.returncode == 2
        assert told in " ".join(done.stderr.split())


def test_chips_are_machines(tmp_path):
    assert "a2a3: 24 clusters" in kernbench("machine", "list").stdout
    shown = kernbench("machine", "show", "a5").stdout
    assert "chip a5" in shown
    assert "memory.bandwidth" in shown
    file = tmp_path / "mine.toml"
    file.write_text('extends = "a2a3"\nname = "mine"\n[tasks]\nwindow = 16\n')
    good = kernbench("machine", "check", str(file))
    assert good.returncode == 0
    assert "good; chip mine, 24 clusters" in good.stdout
    file.write_text('extends = "a2a3"\n[tasks]\nwindow = 0\nwindows = 2\n')
    bad = kernbench("machine", "check", str(file))
    assert bad.returncode == 2
    assert "tasks.window" in bad.stderr
    assert "known: large, reference, small, a2a3, a5" in " ".join(kernbench("machine", "show", "a4").stderr.split())
