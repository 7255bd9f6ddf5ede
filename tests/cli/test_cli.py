"""The command line: what it prints, and the exit codes 0 (right and safe), 1 (findings or wrong), 2 (misuse)."""

import json
import logging
import os
import subprocess
import sys

import pytest

from kernbench.bench.discovery.new import write_new
from kernbench.cli.output.console import show_notes

SMALL = ["--set", "context=24", "--set", "d_head=16", "--set", "h_q=4", "--set", "h_kv=2", "--set", "lengths="]
DECODE = "batched_incremental_attention"
MILESTONE = "milestone_gqa_llama70b"


def test_list(kernbench):
    done = kernbench("list")
    assert done.returncode == 0
    assert MILESTONE in done.stdout
    assert "multi_user_decode" in done.stdout


@pytest.mark.programs
def test_a_stream_that_cannot_take_what_is_printed(tmp_path):
    write_new("mesh", "größe", tmp_path)
    command = [sys.executable, "-m", "kernbench.cli"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "20"}
    done = subprocess.run(
        [*command, "show", "größe.py"], capture_output=True, text=True, cwd=tmp_path, env=ascii_only, timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert "gr\\xf6\\xdfe" in done.stdout
    read, pipe = os.pipe()
    os.close(read)
    full = os.open("/dev/full", os.O_WRONLY)
    told = "error: standard output cannot be written: No space left on device\n"
    for arguments, stream, code, ending in (
        (["machine", "show", "reference"], full, 2, told),
        (["machine", "show", "reference", "--json", "-"], full, 2, told),
        (["machine", "show", "reference", "--json", "-"], pipe, 1, "┘\n"),
    ):
        done = subprocess.run([*command, *arguments], stdout=stream, stderr=subprocess.PIPE, text=True, timeout=900)
        assert done.returncode == code
        assert done.stderr.endswith(ending), done.stderr
    os.close(full)
    os.close(pipe)


def test_run_all_panels_and_json(tmp_path, kernbench):
    file = tmp_path / "runs.json"
    done = kernbench("run", MILESTONE, *SMALL, "--json", str(file), "--seed", "3", "--schedule", "reversed")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("yes") == 8
    written = json.loads(file.read_text())
    assert [r["origin"]["panel"] for r in written["runs"]] == [
        "single_user_prefill",
        "single_user_decode",
        "multi_user_prefill",
        "multi_user_decode",
    ]
    assert all(r["right"] and r["safe"] and r["schema"] == 2 for r in written["runs"])
    assert list(tmp_path.iterdir()) == [file]


def test_panels_for_other_hardware_are_told_and_the_others_run(tmp_path, kernbench, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert kernbench("new", "ptx", "mine").returncode == 0
    file = tmp_path / "mine.py"
    panels = '{"here": {"keys": 8}, "elsewhere": {"arch": "sm_70"}}'
    file.write_text(file.read_text().replace("host, launch)", f"host, launch, panels={panels})"))
    done = kernbench("run", "mine.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 right and safe" in done.stdout
    assert "elsewhere was not run: 'mine' is for sm_" in done.stderr
    done = kernbench("run", "mine.py", "--panel", "elsewhere")
    assert done.returncode == 2
    assert "does not run on sm_70" in done.stderr


def test_run_one_panel_with_a_type(kernbench):
    done = kernbench("run", MILESTONE, "--panel", "single_user_decode", *SMALL, "--dtype", "bf16")
    assert done.returncode == 0
    assert "single_user_prefill" not in done.stdout


def test_all_algorithms_are_ranked_and_the_best_explained(tmp_path, kernbench):
    file = tmp_path / "runs.json"
    done = kernbench("run", MILESTONE, *SMALL, "--all-algorithms", "--json", str(file), "--set", "n_ranks=2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" wins: ") == 4
    assert done.stdout.count("times as fast as mesh_") >= 2
    assert done.stdout.count("cycle_kv needs a closed walk over the grid") == 2
    runs = json.loads(file.read_text())["runs"]
    assert {r["origin"]["parameters"]["algorithm"] for r in runs} >= {"mesh_kv", "zigzag_kv", "mesh_mlo", "tree_mlo"}


def test_a_size_runs_without_data(kernbench):
    few = ["--set", "h_q=2", "--set", "h_kv=1", "--set", "d_head=16", "--set", "users=1"]
    done = kernbench("run", MILESTONE, "--size", "8k", "--panel", "multi_user_decode", *few)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not asked" in done.stdout
    assert "for 80 layers" in done.stdout


@pytest.mark.programs
def test_a_ptx_bench_runs_on_the_emulator(kernbench):
    few = ["--set", "users=2", "--set", "lengths=9,3", "--set", "h_q=2", "--set", "h_kv=1", "--device", "emulator"]
    done = kernbench("run", DECODE, "--panel", "one_warp", "--all-algorithms", *few)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(name in done.stdout for name in ("one_warp", "multi_warp", "shared_kv", "split_kv"))
    assert "wins" in done.stdout
    assert "x best" in done.stdout


def test_findings_end_with_one_and_show_source(kernbench):
    done = kernbench("run", MILESTONE, "--panel", "single_user_prefill", *SMALL, "--set", "machine.ipcq.depth=1")
    assert done.returncode == 1
    assert "deadlock" in done.stdout
    assert "tl.send(dir=route.direction, src=pair[part])" in done.stdout
    assert "next: receive before sending more" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "milestone"], "milestone_gqa_llama70b, paged_attention"),
        (["run", MILESTONE, "--panel", "nope"], "known: single_user_prefill"),
        (["run", MILESTONE, "--set", "heads=3"], "unknown parameter 'heads'"),
        (["run", MILESTONE, "--set", "h_q=many"], "a whole number is wanted"),
        (["run", MILESTONE, "--set", "h_q"], "key=value is wanted"),
        (["run", MILESTONE, "--set", "h_q=9"], "must be a multiple of h_kv"),
        (["run", MILESTONE, "--set", "n_ranks=9"], "choose 1 to 8"),
        (["run", MILESTONE, "--dtype", "f64"], "allowed is f16, bf16, f32"),
        (["run", MILESTONE, "--set", "machine=nope.toml"], "nope.toml"),
        (["run", MILESTONE, "--set", "machine.ipcq.depth=0"], "ipcq.depth"),
        (["run", MILESTONE, "--json", "no/such/folder/x.json"], "there is no folder"),
        (["run", MILESTONE, "--schedule", "random"], "schedule 'random'"),
        (["run", MILESTONE, "--size", "huge"], "unknown size of milestone_gqa_llama70b 'huge'"),
        (["run", MILESTONE, "--all-algorithms", "--set", "algorithm=mesh_kv"], "leave --set algorithm away"),
        (["run", MILESTONE, "--device", "cuda"], "bench milestone_gqa_llama70b has no parameter device"),
        (["run", DECODE, "--device", "gpu"], "parameter device = 'gpu': allowed is emulator, cuda"),
        (["run", DECODE, "--shapes-only"], "PTX runs on data"),
        (["run", "missing.py"], "no such file"),
        (["show", MILESTONE, "--rank", "99", "--no-source", *SMALL], "rank 99 dispatched no command"),
        (["machine", "check", "nowhere.toml"], "nowhere.toml"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_misuse_ends_with_two_and_says_what_is_known(arguments, words, kernbench):
    done = kernbench(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert words in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_show(kernbench):
    done = kernbench("show", MILESTONE, *SMALL, "--rank", "1", "--last", "5")
    assert done.returncode == 0, done.stderr
    assert "KV heads; divides h_q" in done.stdout
    assert "def launch(" in done.stdout
    assert "commands of rank 1, single_user_prefill" in done.stdout
    assert "tl.store(" in done.stdout


def test_machine_commands(tmp_path, kernbench):
    assert "512 GB/s" in kernbench("machine", "show", "reference").stdout
    assert "large: 64 cubes of 64 PEs" in kernbench("machine", "list").stdout
    file = tmp_path / "mine.toml"
    file.write_text('extends = "small"\n[ipcq]\ndepth = 3\n')
    assert kernbench("machine", "check", str(file)).returncode == 0
    file.write_text('extends = "small"\n[ipcq]\ndepth = -3\n')
    bad = kernbench("machine", "check", str(file))
    assert bad.returncode == 2
    assert "ipcq.depth" in bad.stderr


def test_help_and_version(kernbench):
    assert kernbench("--version").stdout.startswith("kernbench 0.")
    for command in ([], ["run"], ["list"], ["show"], ["machine"], ["machine", "check"]):
        done = kernbench(*command, "--help")
        assert done.returncode == 0
        assert "Usage" in done.stdout


def test_results_never_replace_what_is_no_file(tmp_path, kernbench):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = kernbench("run", MILESTONE, "-p", "single_user_decode", *SMALL, "--json", str(pipe))
    assert done.returncode == 2
    assert "no ordinary file" in done.stderr
    assert pipe.is_fifo()
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    assert kernbench("run", MILESTONE, "-p", "single_user_decode", *SMALL, "--json", str(link)).returncode == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["bench"] == MILESTONE
    both = kernbench("run", MILESTONE, *SMALL, "--json", str(target), "--trace", str(target))
    assert both.returncode == 2


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "kernbench", "--version"], capture_output=True, text=True, timeout=900, check=False
    )
    assert (done.returncode, done.stdout.split()[:1]) == (0, ["kernbench"])


def test_show_says_which_panel_it_shows(kernbench):
    assert "without it the first" in " ".join(kernbench("show", "--help").stdout.split())


def test_notes_of_the_library_are_seen_at_a_terminal_only(monkeypatch, capsys):
    notes = logging.getLogger("kernbench")
    monkeypatch.setattr(notes, "handlers", [])
    monkeypatch.setattr(notes, "level", notes.level)
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal, raising=False)
        show_notes()
        logging.getLogger("kernbench.common.compiled").info("compiling")
        assert ("compiling" in capsys.readouterr().err) == terminal
