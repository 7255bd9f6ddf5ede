"""A process that ends passes over its objects, but for those of which somebody could miss the end."""

import subprocess
import sys

import pytest

# the last handler says whether the collections to come pass over the objects of the process
BEGIN = """
import atexit, gc, sys
atexit.register(lambda: print("passed over" if gc.get_freeze_count() > 1000 else "gone through"))
"""
LEFT = BEGIN + "from kernbench.safety.processes.leaving import freeze\natexit.register(freeze)\n"
CYCLE = """
class Held:
    def __init__(self, **given):
        self.me = self
        vars(self).update(given)
"""
ENDED = CYCLE + "    def __del__(self):\n        print('ended')\n"


def said(program, *words):
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.mark.programs
def test_objects_are_passed_over(tmp_path):
    assert said(f"{LEFT}{CYCLE}\nheld = Held()") == ["passed over"]


@pytest.mark.programs
@pytest.mark.parametrize("opened", ["open(path, 'w')", "open(path, 'wb', buffering=100)"])
def test_files_that_only_a_cycle_holds_are_written(tmp_path, opened):
    path = tmp_path / "log"
    text = "'written'" if "'w'" in opened else "b'written'"
    program = f"{LEFT}{CYCLE}\npath = {str(path)!r}\nheld = Held(log={opened})\nheld.log.write({text})"
    assert said(program) == ["passed over"]
    assert path.read_text() == "written"


@pytest.mark.programs
def test_what_a_program_does_at_the_end_of_its_objects_is_done():
    assert said(f"{LEFT}{ENDED}\nheld = Held()") == ["gone through", "ended"]


@pytest.mark.programs
def test_objects_passed_over_end_with_the_last_collection():
    # the weak reference outlives its object, and writes when that ends, as some extension modules do
    watching = """
import ctypes, functools, os, weakref
out = os.fdopen(os.dup(1), "w", buffering=1)
told = weakref.ref(held, functools.partial(print, "ended:", file=out))
ctypes.pythonapi.Py_IncRef(ctypes.py_object(told))
ctypes.pythonapi.Py_IncRef(ctypes.py_object(out))
print(end="", flush=True)
"""
    assert [line.partition(":")[0] for line in said(f"{LEFT}{CYCLE}\nheld = Held(){watching}")] == [
        "passed over",
        "ended",
    ]


@pytest.mark.programs
def test_commands_leave_so():
    program = f"{BEGIN}\nfrom kernbench.cli import main\nsys.argv = ['kernbench', '--version']\nmain()"
    assert said(program)[-1] == "passed over"
