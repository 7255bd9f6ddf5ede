"""`--exact`: which commands take it, what it changes, and that results say whether it was used."""

import json
import sys

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.test_wgmma import kernel, tiles
from typer.testing import CliRunner

from kernbench.bench import Bench, find, run_bench
from kernbench.bench.discovery.new import write_new
from kernbench.cli import app
from kernbench.common.errors import BenchError
from kernbench.ptx.devices.host import Host

KINDS, N = ("f32", "e4m3", "e4m3"), 8


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A wgmma of 8-bit floats, of whose sums a GPU keeps 13 bits, and its launch."""
    _, _, data, descriptors = tiles(1, N, 32, KINDS, "32B", "none")
    (tmp_path / "k.ptx").write_text(kernel(N, KINDS, 32).module.source)
    np.save(tmp_path / "image.npy", data)
    (tmp_path / "k.toml").write_text(
        f"block = [128]\nshared_bytes = {len(data)}\n"
        '[args.image]\nfile = "image.npy"\n'
        '[args.out]\ndtype = "u32"\nshape = [128, 4]\nfill = "zeros"\n'
        f"[args.nbytes]\nvalue = {len(data)}\n[args.a]\nvalue = {descriptors[0]}\n[args.b]\nvalue = {descriptors[1]}\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def kernbench(*words):
    done = CliRunner().invoke(app, [*map(str, words), "--json", "out.json"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, (done.output, done.exception)
    with open("out.json") as file:
        return json.load(file)


def test_products_have_the_bits_of_the_tensor_core_with_and_without_it(folder):
    outputs = {}
    for words in ((), ("--exact",)):
        document = kernbench("ptx", "run", "k.ptx", "-l", "k.toml", "-o", "o.npz", *words)
        assert document["origin"]["exact"] is bool(words)
        outputs[words] = np.load("o.npz")["out"]
    plain, exact = outputs.values()
    np.testing.assert_array_equal(plain, exact)
    assert not (exact & 0x3FF).any(), "13 bits behind the leading one are kept"


@pytest.mark.parametrize("command", [("ptx", "check"), ("ptx", "launch")])
def test_other_commands_take_it(folder, command):
    assert kernbench(*command, "k.ptx", "-l", "k.toml", "--exact")["origin"]["exact"] is True


def test_benches_on_ptx_take_it_and_others_refuse_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for target in ("ptx", "mesh"):
        write_new(target, f"of_{target}", tmp_path)
    runs = [kernbench("run", "of_ptx.py", *words)["runs"][0] for words in ((), ("--exact",))]
    assert [run["origin"]["exact"] for run in runs] == [False, True]
    done = CliRunner().invoke(app, ["run", "of_mesh.py", "--exact"])
    assert isinstance(done.exception, BenchError)
    assert "--exact: target mesh has one way of computing" in str(done.exception)


def test_a_second_order_is_run_exactly_too(monkeypatch):
    """Each repeated launch has a host of its own."""
    hosts = []
    monkeypatch.setattr(Host, "__init__", _kept(Host.__init__, hosts))
    bench: Bench = find("batched_incremental_attention")
    run_bench(bench, next(iter(bench.panels)), exact=True, second_order="always")
    assert len(hosts) == 3, "in the canonical order, reversed, and in one that is drawn"
    assert all(host.exact for host in hosts)


def _kept(made, hosts):
    def __init__(self, *args, **options):  # noqa: N807
        made(self, *args, **options)
        hosts.append(self)

    return __init__


PROGRAM = """
from kernbench.ptx.doors.opening.environment import process_session
session = process_session()
x = session.memory.allocate(4, "x", written=True)
text = '''.version 7.0
.target sm_80
.address_size 64
.visible .entry nothing() { ret; }'''
launch = session.launch(session.load(text).kernel("nothing"), 1, 32, [])
assert launch.run.origin["exact"], launch.run.origin
"""


@pytest.mark.programs
def test_programs_run_exactly(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = CliRunner().invoke(app, ["exec", "--exact", "--json", "out.json", "--", sys.executable, "program.py"])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "out.json").read_text())["exact"] is True
