"""Programs that die, fork, run threads, launch from many processes or never end: what was found until then is kept."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.ptx.doors.kernels import ADD_ONE, word
from tests.ptx.doors.test_exec import run_under

from kernbench.ptx.doors.options import Options
from kernbench.ptx.doors.session import Notes
from kernbench.ptx.doors.summary import read_session
from kernbench.ptx.front.commands import exec as command
from kernbench.ptx.front.ending import descendants, end_program

pytestmark = pytest.mark.programs


def kinds(document):
    return {finding["kind"] for kernel in document["kernels"] for finding in kernel["findings"]}


def test_threads_launch_and_the_program_is_killed(tmp_path):
    lines = """
import ctypes, threading
threads = [threading.Thread(target=launch, args=(65,)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
ctypes.string_at(0)
"""
    done, document = run_under(tmp_path, lines, "--junit", str(tmp_path / "out.xml"))
    assert done.exit_code == 128 + signal.SIGSEGV
    assert "the program was ended by SIGSEGV; what was found until then is above" in done.stderr
    (kernel,) = document["kernels"]
    assert sorted(run["number"] for run in kernel["runs"]) == [1, 2, 3, 4]
    assert kinds(document) == {"out-of-bounds"}
    assert "<failure" in (tmp_path / "out.xml").read_text()


def test_processes_of_all_kinds_are_seen_and_an_exception_is_the_programs_own(tmp_path):
    lines = """
import multiprocessing

if __name__ == "__main__":
    launch(64)
    for how in ("fork", "spawn"):
        child = multiprocessing.get_context(how).Process(target=launch, args=(65,))
        child.start()
        child.join()
        assert child.exitcode == 0
    raise ValueError("of its own")
"""
    done, document = run_under(tmp_path, lines)
    assert done.exit_code == 1
    (kernel,) = document["kernels"]
    assert (document["processes"], kernel["launches"], kinds(document)) == (3, 3, {"out-of-bounds"})


def test_a_program_that_never_ends_is_ended(tmp_path, monkeypatch):
    """Its time is over as soon as it has launched, however long that took."""
    launched = tmp_path / "launched"

    class Program(subprocess.Popen):
        def wait(self, timeout=None):
            if timeout != 3600:
                return super().wait(timeout)
            while not launched.exists() and self.poll() is None:
                time.sleep(0.01)
            return super().wait(0.01)

    monkeypatch.setattr(command.subprocess, "Popen", Program)
    lines = f"launch(65)\nopen({str(launched)!r}, 'w').close()\nwhile True: pass\n"
    done, document = run_under(tmp_path, lines, "--end-after", "3600")
    assert (done.exit_code, document["exit_code"]) == (124, 124)
    assert "the program was ended after --end-after; what was found until then is above" in done.stderr
    assert kinds(document) == {"out-of-bounds"}


STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(0, flush=True); time.sleep(600)"
FAMILY = f"""
import subprocess, sys
plain = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
# one that does not heed a request to end
other = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE)
other.stdout.readline()
print(plain.pid, other.pid, flush=True)
plain.wait()
"""


def test_a_program_is_ended_with_the_processes_that_it_began():
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE) as program:
        begun = [int(word) for word in program.stdout.readline().split()]
        assert sorted(number for number, _ in descendants(program.pid)) == sorted(begun)
        end_program(program, 0.3)
    assert program.returncode is not None
    assert not [number for number in begun if state_of(number) not in ("", "Z")]


def state_of(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_a_program_that_heeds_no_signal_is_killed_at_the_third():
    sent = []
    child = SimpleNamespace(send_signal=lambda number: sent.append(number), kill=lambda: sent.append("kill"))
    with command._passing_signals(child):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
    assert sent == [signal.SIGTERM, signal.SIGTERM, "kill", "kill"]


def test_an_interrupted_launch_is_one_that_did_not_end(session_of, tmp_path, monkeypatch, request):
    session = session_of(folder=tmp_path)
    kernel = session.load(ADD_ONE).kernel("add_one")

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(session.device, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.launch(kernel, 1, 64, [word(0), word(0), word(0, 4)])
    assert session.launches[0].error == "interrupted by KeyboardInterrupt"
    (summary,) = read_session(tmp_path).kernels
    assert summary.errors == [f"launch 1 (in {request.node.nodeid}): interrupted by KeyboardInterrupt"]
    case = command._Case("program.py", summary, Options().arch)
    assert (case.passed, case.run, case.error) == (False, None, summary.errors[0])


def test_an_interrupted_launch_is_not_called_wrong(session_of, tmp_path, monkeypatch, request):
    """It has no finding: its compile-time constants are not to blame."""
    session = session_of(folder=tmp_path)
    kernel = session.load(ADD_ONE).kernel("add_one")
    run = session.device.run

    def interrupted(*args):
        raise KeyboardInterrupt

    for width, runs in ((32, run), (64, interrupted)):
        monkeypatch.setattr(session.device, "run", runs)
        arrays = [session.memory.allocate(256, name, written=True) for name in "xy"]
        words = [*(one.to_bytes(8, "little") for one in arrays), (64).to_bytes(4, "little")]
        with nullcontext() if runs is run else pytest.raises(KeyboardInterrupt):
            session.launch(kernel, 2, 64, words, notes=Notes(details={"constants": {"B": width}}))
    (summary,) = read_session(tmp_path).kernels
    assert summary.errors == [f"launch 2 (in {request.node.nodeid}): interrupted by KeyboardInterrupt"]
    assert summary.parting == ""


INTERRUPTED = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
launch(65)
device = process_session().device
run = device.run

def interrupted(*given):
    os.kill(os.getpid(), signal.SIGINT)
    return run(*given)

device.run = interrupted
launch(64)
"""


def test_what_was_found_before_ctrl_c_is_kept_and_the_exit_code_says_so(tmp_path):
    done, document = run_under(tmp_path, INTERRUPTED)
    assert (done.exit_code, document["exit_code"]) == (130, 130)
    assert "add_one, launch 2: interrupted by KeyboardInterrupt" in done.stderr
    assert "the program was ended by SIGINT; what was found until then is above" in done.stderr
    (kernel,) = document["kernels"]
    assert {finding["kind"] for finding in kernel["findings"]} == {"out-of-bounds"}


def test_a_child_forked_while_another_thread_launches(session_of):
    session = session_of()
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with session._lock, session.memory.lock:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    child = os.fork()
    if not child:
        # a child that waits for a thread which it has not got is ended by the alarm
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        kernel = session.load(ADD_ONE).kernel("add_one")
        x = session.memory.allocate(256, "x", written=True)
        launch = session.launch(kernel, 1, 64, [word(x), word(x), word(64, 4)])
        os._exit(0 if launch.ok else 1)
    leave.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_records_of_an_emulated_gpu_under_exec_are_the_commands(tmp_path):
    lines = """
from kernbench import ptx
with ptx.emulated("sm_80") as session:
    process_session = lambda: session
    launch(65)
"""
    done, document = run_under(tmp_path, lines)
    assert done.exit_code == 1
    assert kinds(document) == {"out-of-bounds"}
