"""Files checked on a cluster's nodes: the cases of one machine."""

import os
from dataclasses import replace

import pytest
from tests.clusters import fake_ray

from kernbench.bench.checking import nodes
from kernbench.bench.checking.check import Conditions, check_files
from kernbench.bench.checking.nodes import Sent, check_files_on, check_on_node
from kernbench.bench.cluster import Cluster
from kernbench.bench.discovery.new import filled_in
from kernbench.common.errors import BenchError
from kernbench.result.acknowledged import Entry, fingerprint

pytestmark = pytest.mark.programs

SMALL = {"param(4,": "param(2,", "param(32,": "param(4,", "param(64,": "param(4,"}


@pytest.fixture
def ray(monkeypatch):
    """A cluster in this process; its keeper, an interpreter that takes a second to start, stays for the next test."""
    return fake_ray(monkeypatch)


@pytest.fixture(autouse=True, scope="module")
def end_keeper():
    yield
    if nodes._keeper is not None:
        process, connection = nodes._keeper
        connection.close()
        process.wait()
        nodes._keeper = None


def bench_text(name, at_import="", in_launch="pass"):
    text = filled_in("mesh", name)
    for old, new in SMALL.items():
        text = text.replace(old, new)
    text = text.replace("import numpy as np\n", f"import os\nimport numpy as np\n{at_import}\n", 1)
    return text.replace("torch):\n", f"torch):\n    {in_launch}\n", 1)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Benches that are good, wrong, unsafe, deadly and unreadable, and a file that is none; seen from their folder."""
    monkeypatch.chdir(tmp_path)
    benches = tmp_path / "benches"
    benches.mkdir()
    good = bench_text("good")
    texts = {
        "a_good": good,
        "b_wrong": good.replace("tl.trans(k)", "tl.reshape(k, (d, S))"),
        "c_unsafe": good.replace("    tl.store(o_ptr", '    tl.send(dir="E", src=k)\n    tl.store(o_ptr'),
        "d_leaves": bench_text("leaves", in_launch="print('farewell'); os._exit(3)"),
        "e_broken": "from kernbench.bench import Bench\nbench = Bench(\n",
        "f_panels": panels(good),
        "g_helper": "raise RuntimeError('must not be imported')\n",
        "h_hungry": bench_text("hungry", in_launch="np.empty(1 << 50)"),
    }
    for name, text in texts.items():
        (benches / f"{name}.py").write_text(text)
    (benches / "i_gone.py").symlink_to("nowhere.py")
    return sorted(path.relative_to(tmp_path) for path in benches.glob("*.py"))


def panels(text):
    """A bench whose second panel of three ends its process."""
    text = text.replace("inputs, golden, host, launch", "inputs, golden, host, launch, PANELS")
    text = text.replace("torch):\n", "torch):\n    os._exit(0) if p.S == 5 else None\n", 1)
    sizes = "PANELS = {'one': {'S': 3}, 'two': {'S': 5}, 'three': {'S': 7}}\n"
    return text.replace("@dataclass", f"{sizes}@dataclass", 1)


def plain(case):
    """A case without what no two runs have alike."""
    run = None if case.run is None else case.run.to_dict()
    return replace(case, seconds=0.0, run=None), run


def cases_on(address, files, **how):
    with Cluster(address) as cluster:
        return [plain(case) for case in check_files_on(cluster, files, Conditions(**how))]


def test_a_cluster_gives_the_cases_of_one_machine(ray, folder):
    alone = [plain(case) for case in check_files(folder, Conditions(timelines=True))]
    assert len(alone) == 10
    assert [case.panel for case, _ in alone if case.file.stem == "f_panels"] == ["one", "two", "three"]
    assert cases_on("local", folder, timelines=True) == alone
    assert ray.most_under_way == 2


def test_conditions_reach_the_nodes(ray, folder):
    files = [file for file in folder if file.stem in ("c_unsafe", "h_hungry")]
    (finding,) = next(check_files(files, Conditions())).run.findings
    known = [Entry(finding.kind, fingerprint(finding), "a test")]
    for how in ({"seed": 3, "baseline": known}, {"schedule": "reversed"}, {"memory": 1 << 30, "strict": True}):
        alone = [plain(case) for case in check_files(files, Conditions(**how))]
        assert cases_on("local", files, **how) == alone
        assert [case.error == "" for case, _ in alone] == [True, False]
        assert bool(alone[0][1]["findings"]) == ("baseline" not in how)


def test_a_bench_that_never_ends_is_ended_on_its_node(ray, tmp_path):
    (tmp_path / "stays.py").write_text(bench_text("stays", in_launch="while True: pass"))
    ((case, _),) = cases_on("local", [tmp_path / "stays.py"], seconds=1.0)
    assert "running stays did not end within 1 s; it was at" in case.error


def test_a_file_that_a_node_does_not_have(ray, folder, tmp_path, monkeypatch):
    missing = tmp_path / "elsewhere"
    missing.mkdir()
    monkeypatch.chdir(missing)
    real = nodes._answer
    for change, words in (
        ({"folder": str(tmp_path / "gone")}, "is missing"),
        ({"digest": "another"}, "is not the file that is here"),
    ):
        monkeypatch.setattr(nodes, "check_on_node", lambda sent, change=change: answered(real, replace(sent, **change)))
        with pytest.raises(BenchError, match=f"--ray local: on the node .*{words}.*on every node at the same path"):
            cases_on("local", [tmp_path / folder[0]])


def answered(real, sent):
    answer = real(sent)
    assert isinstance(answer, str)
    raise nodes.OtherNodeError(answer)


def test_a_file_that_is_lost_three_times_has_failed(ray, folder):
    ray.lost = 3
    ((case, run),) = cases_on("local", folder[:1])
    assert (case.panel, run) == ("load", None)
    assert case.error.startswith(f"{folder[0]}: lost 3 times with its node or Ray worker (the node is gone)\n  next: ")


def test_a_bench_that_ends_the_keeper(ray, tmp_path):
    (tmp_path / "strikes.py").write_text(bench_text("strikes", in_launch="os.kill(os.getppid(), 9)"))
    (tmp_path / "good.py").write_text(bench_text("good"))
    good, strikes = tmp_path / "good.py", tmp_path / "strikes.py"
    errors = [case.error for case, _ in cases_on("local", [good, strikes, good])]
    assert errors[::2] == ["", ""]
    assert "the process that runs benches ended with exit code -9" in errors[1]


def test_a_keeper_is_kept(ray, folder):
    how = Conditions()
    sent = Sent(os.getcwd(), str(folder[0]), nodes._digest(folder[0]), True, how, 1)
    check_on_node(sent)
    first = nodes._keeper[0].pid
    (case,) = check_on_node(sent)
    assert (nodes._keeper[0].pid, case["error"]) == (first, "")
