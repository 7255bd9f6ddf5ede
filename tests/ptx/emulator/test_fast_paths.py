"""The off-switch: every fast path asks it, is taken where it may be, and not where it may not.

`PATHS` names for each fast path a function that only it calls, or one that only the plain code calls: who adds a field
to `FastPaths` adds a row here, and launches that take the path.
"""

import ast
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks.ptx_random import emulate
from tests.ptx.emulator.asynchronous import test_boxes, test_copies
from tests.ptx.triton import test_triton as triton

import kernbench.ptx.emulator
from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.fast_paths import ALL, NAMES, NONE, VARIABLE, fast_paths
from kernbench.ptx.reference.programs import safe_program

# it turns fast paths on and off itself
pytestmark = pytest.mark.fast_paths
EMULATOR = Path(kernbench.ptx.emulator.__file__).parent
FAST, PLAIN = "fast", "plain"
# fast path -> whether a function belongs to it or to the plain code, and the function: its module and name
PATHS = {
    "executor": (FAST, "engine.launch", "Launch._is_attempted"),
    "fused_steps": (FAST, "fused.runs", "_Form.spend"),
    "runs_of_warps": (FAST, "lanes.window", "RunWindow.__init__"),
    "late_tracking": (PLAIN, "engine.scheduler", "Scheduler._follow_undefined"),
    "word_loads": (FAST, "memory.port", "Port._is_loaded"),
    "matrix_rows": (FAST, "instructions.matrix.matrix", "_are_loaded"),
    "taken_copies": (FAST, "asynchronous.copies.copies", "Copies.take"),
    "delivered_copies": (FAST, "memory.port", "Port.deliver"),
    "boxes_together": (FAST, "instructions.bulk", "_load_all"),
    "whole_rows": (PLAIN, "asynchronous.copies.tensors", "piece_by_piece"),
    "repeated_boxes": (FAST, "asynchronous.copies.tensors", "_Move.join_repeated"),
    "products_together": (FAST, "asynchronous.agents", "Agent.handed_over"),
    "half_tiles": (FAST, "memory.tiles", "gather_halves"),
    "equal_products": (FAST, "checks.asynchronous.tensor", "TensorChecks._are_plain"),
    "tensor_entries": (FAST, "checks.asynchronous.tensor_order", "enter_regions"),
    "allocations_together": (FAST, "asynchronous.matrix.tensor_unit", "TensorUnit.are_plain"),
    "single_lanes": (FAST, "lanes.window", "WindowOf.singles"),
    "new_barriers": (FAST, "barriers.mbarriers", "Mbarriers._open_new"),
    "usable_barriers": (FAST, "checks.asynchronous.asynchronous", "AsynchronousChecks.all_shown"),
    "warp_arrivals": (FAST, "checks.happens_before.clocks", "Clocks.any_aware"),
    "unchanged_waits": (FAST, "barriers.mbarriers", "Mbarriers.completed"),
    "gathered_warps": (FAST, "barriers.gathering", "Gathering._is_complete"),
    "whole_warp_clocks": (FAST, "checks.happens_before.clock_kernels", "meet_whole"),
    "clock_rows": (FAST, "checks.happens_before.near_rows", "NearRows.release"),
    "clock_floors": (PLAIN, "checks.happens_before.clock_kernels", "drop_floors"),
    "shared_lines": (PLAIN, "memory.cells", "keep_apart"),
    "meant_bounds": (FAST, "checks.memory.meant", "MeantArrays.leaves"),
    "valid_maps": (FAST, "asynchronous.copies.tensor_maps", "set_fields"),
    "processes": (FAST, "engine.splitting", "Splitting.__init__"),
}


UNCHECKED_WAIT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 array)
{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  .shared .align 8 .b64 barriers[2];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, barriers;
  setp.ne.u32 %p0, %r0, 0;
  @!%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
  @!%p0 mbarrier.init.shared::cta.b64 [%r1+8], 1;
  bar.sync 0;
  setp.lt.u32 %p1, %r0, 32;
  @%p1 bra FIRST;
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8], 0;
  @!%p2 bra WAIT;
  bra DONE;
FIRST:
  @%p0 bra OTHER;
  mbarrier.arrive.shared::cta.b64 %rd1, [%r1];
OTHER:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
  @!%p2 bra OTHER;
  bar.warp.sync -1;
  @!%p0 mbarrier.arrive.shared::cta.b64 %rd1, [%r1+8];
DONE:
  ret;
}
"""


def unchecked_wait():
    device = ptx.EmulatedDevice("sm_90a")
    kernel = ptx.parse(UNCHECKED_WAIT).kernels["kernel"]
    for options in ({"checks": False}, {}, {"jobs": 2}):
        assert device.launch(kernel, 2, 64, [device.array(np.zeros(4, np.uint32))], **options).findings == []


def random_programs():
    for seed in range(6):
        program = safe_program(seed)
        emulate(program, ptx.parse(program.text).kernels["kernel"], "canonical")


def launches():
    """Launches that take every fast path at least once, where they may."""
    unchecked_wait()
    random_programs()
    test_copies.test_a_tensor_map_that_the_kernel_makes()
    test_boxes.test_a_stored_box(ptx.EmulatedDevice(), 100)
    for target in ("sm_80", "sm_90", "sm_100"):
        triton.test_attention(target, "canonical")


def calls(monkeypatch, asked):
    """How often launches under a setting call the functions of `PATHS`."""
    found = dict.fromkeys(PATHS, 0)
    with monkeypatch.context() as patch:
        patch.setenv(VARIABLE, asked)
        for name, (_, module, function) in PATHS.items():
            *path, last = function.split(".")
            owner = pkgutil.resolve_name(f"kernbench.ptx.emulator.{module}:{'.'.join(path)}")
            original = getattr(owner, last)

            def counted(*given, _name=name, _original=original, **more):
                found[_name] += 1
                return _original(*given, **more)

            patch.setattr(owner, last, counted)
        launches()
    return found


def test_every_fast_path_is_taken_and_none_with_the_switch_off(monkeypatch):
    # what the executor runs takes no other fast path
    fast, plain = calls(monkeypatch, "-executor"), calls(monkeypatch, "none")
    fast["executor"] = calls(monkeypatch, "all")["executor"]
    kinds = {name: kind for name, (kind, _, _) in PATHS.items()}
    assert {name for name in PATHS if fast[name]} == {name for name in PATHS if kinds[name] == FAST}
    assert {name for name in PATHS if plain[name]} == {name for name in PATHS if kinds[name] == PLAIN}


def test_every_fast_path_asks_and_has_a_row_here():
    asked = set()
    for path in EMULATOR.rglob("*.py"):
        asked.update(re.findall(r"fast\.(\w+)", path.read_text()))
    assert asked - {"fast_paths"} == set(NAMES) == set(PATHS)


TOLD_OF = re.compile("fast path|quick test", re.IGNORECASE)


def words_of(path):
    """The functions of a file that speaks of fast paths, each with its text."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)) if TOLD_OF.search(text) else ():
        if isinstance(node, ast.FunctionDef):
            yield node.name, "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])


# functions that speak of a fast path and do not ask themselves: they are called where somebody has asked, or the speech
# is of a case within a compiled loop that `clock_floors` and `shared_lines` turn off
TOLD = {
    "_are_loaded", "_is_loaded", "_are_plain", "meet_whole", "_look", "_write_slowly", "plainly_unordered", "leaves",
    "replace",
}  # fmt: skip


def test_who_speaks_of_a_fast_path_asks_whether_it_may_be_taken():
    speaks = {
        name
        for path in EMULATOR.rglob("*.py")
        for name, text in words_of(path)
        if TOLD_OF.search(text) and not re.search(r"fast\.\w+", text)
    }
    assert speaks - TOLD == {"fast_paths"}


@pytest.mark.parametrize(
    ("asked", "off"),
    [
        ("all", set()),
        ("", set()),
        ("none", set(NAMES)),
        ("all,-word_loads", {"word_loads"}),
        ("-word_loads -clock_rows", {"word_loads", "clock_rows"}),
    ],
)
def test_settings(asked, off, monkeypatch):
    monkeypatch.setenv(VARIABLE, asked)
    for found in (fast_paths(), fast_paths(asked)):
        assert {name for name in NAMES if not getattr(found, name)} == off
    assert (fast_paths("all"), fast_paths("none")) == (ALL, NONE)


def test_some_alone_and_names_that_are_none(monkeypatch):
    assert {name for name in NAMES if getattr(fast_paths("word_loads, clock_rows"), name)} == {
        "word_loads",
        "clock_rows",
    }
    monkeypatch.setenv(VARIABLE, "wordloads")
    with pytest.raises(
        MisuseError, match=r"KERNBENCH_FAST_PATHS='wordloads': unknown fast path .*Did you mean 'word_loads'"
    ):
        ptx.EmulatedDevice()
    with pytest.raises(
        MisuseError, match="fast paths='some': unknown fast path 'some'; known: all, none, executor, fused_steps"
    ):
        ptx.EmulatedDevice(fast_paths="some")
