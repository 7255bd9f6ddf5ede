"""The command line and GPU files: they are listed, shown and checked as the machines of other targets are."""

import json

import pytest
from typer.testing import CliRunner

from kernbench.cli import app
from kernbench.common.errors import KernbenchError


def kernbench(*arguments):
    """The command in this process; misuse is raised."""
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    if isinstance(done.exception, KernbenchError):
        raise done.exception
    return done


def test_gpus_are_listed_and_shown_like_other_machines(tmp_path):
    assert "h200: 132 SMs, 141 GB of HBM at 4.8 TB/s" in kernbench("machine", "list").stdout
    file = tmp_path / "shown.json"
    assert "(published: " in kernbench("machine", "show", "h200", "--json", str(file)).stdout
    keys = {key["name"]: key for key in json.loads(file.read_text())["keys"]}
    far = keys["l2.far"]
    assert (far["unit"], far["value"]["source"]) == ("cycles", "measured")
    assert far["value"]["range"][0] <= far["value"]["value"] <= far["value"]["range"][1]


def test_a_gpu_file_of_ones_own_is_checked(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('extends = "h200"\n[l2]\nlatency = 250\n')
    assert "good; gpu mine, 132 SMs" in kernbench("machine", "check", str(file)).stdout
    file.write_text('extends = "h200"\n[l2]\nlatency = { value = 250 }\n')
    with pytest.raises(KernbenchError, match="a figure needs value and source"):
        kernbench("machine", "check", str(file))
