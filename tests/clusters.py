"""Ray for tests: the calls of it that are used, in this process; and, where Ray is installed, a real cluster.

    python -m tests.clusters FOLDER check benches ...

runs a command with `--ray` on two nodes, of which one dies; a process of its own, as one in which Ray has been cannot
be copied any more.
"""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

HAS_RAY = importlib.util.find_spec("ray") is not None
WITHOUT_RAY = "Ray is not installed: pip install 'kernbench[ray]'"
# statements of a bench: on the node that is to die it waits for that
WAIT_FOR_DEATH = """
import os, time

def wait_for_death():
    if folder := os.environ.get("KERNBENCH_DOOMED"):
        open(f"{folder}/there", "w").close()
        time.sleep(1e9)
"""


def on_two_nodes(folder, *arguments):
    """Run a command in a folder on a cluster of which a node is killed midway: it ended with this exit code."""
    words = [sys.executable, "-m", "tests.clusters", str(folder), *arguments]
    root = Path(__file__).parent.parent
    paths = os.pathsep.join([str(root), *filter(None, sys.path)])
    done = subprocess.run(words, cwd=folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert (folder / "died").exists(), done.stderr
    return done


def _command_on_two_nodes(folder, arguments):
    """A cluster with a head and two nodes of one CPU each; when a bench waits on one of them, that is killed."""
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 100 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    cluster.add_node(num_cpus=1, **small)
    doomed = cluster.add_node(num_cpus=1, env_vars={"KERNBENCH_DOOMED": str(folder)}, **small)
    command = subprocess.Popen([sys.executable, "-m", "kernbench.cli", *arguments, "--ray", cluster.address])
    while command.poll() is None and not (folder / "there").exists():
        time.sleep(0.1)
    if command.poll() is None:
        cluster.remove_node(doomed, allow_graceful=False)
        (folder / "died").touch()
    code = command.wait()
    cluster.shutdown()
    return code


def fake_ray(monkeypatch):
    """A `FakeRay` that is imported in Ray's place."""
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    return fake


class WrappedError(Exception):
    """As Ray does, what a task raised is kept as the cause."""

    def __init__(self, cause):
        super().__init__("a task failed")
        self.cause = cause


class NodeDiedError(Exception):
    """As Ray says it of a task that is lost with its node."""


class FakeRay(ModuleType):
    """The calls of Ray that are used, in this process; the task submitted last is done first."""

    def __init__(self, cpus=2):
        super().__init__("ray")
        self.cpus, self.log = cpus, []
        self.lost, self.tries, self.under_way, self.most_under_way = 0, 0, 0, 0

    def init(self, address, **options):
        if address == "auto":
            raise ConnectionError("Could not find any running Ray instance")
        self.log.append(("init", address, options.get("include_dashboard")))

    def shutdown(self):
        self.log.append("shutdown")

    def cluster_resources(self):
        return {"CPU": float(self.cpus), "memory": 1e9}

    def remote(self, max_retries):
        assert max_retries == 0
        return lambda function: SimpleNamespace(remote=lambda *arguments: self._submit(function, arguments))

    def _submit(self, function, arguments):
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        return Reference(function, arguments)

    def wait(self, references, num_returns, timeout):
        assert num_returns == 1 + len(references) // 64
        return references[-1:], references[:-1]

    def cancel(self, reference, force):
        self.log.append("cancel")

    def get(self, reference):
        self.log.append("task")
        self.under_way -= 1
        self.tries += 1
        if self.tries <= self.lost:
            raise NodeDiedError("the node is gone")
        try:
            return reference.function(*reference.arguments)
        except Exception as error:
            raise WrappedError(error) from error


class Reference:
    def __init__(self, function, arguments):
        self.function, self.arguments = function, arguments


if __name__ == "__main__":
    sys.exit(_command_on_two_nodes(Path(sys.argv[1]), sys.argv[2:]))
